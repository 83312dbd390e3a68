// C interface of the packet card's models: one clock a call.
#include "../runtime.h"
#include "Vcard.h"
#include "Vcard_ethernet.h"
#include "Vcard_pcie.h"
#include "Vcard_port.h"
#include "Vcard_small.h"

#include <cstring>
#include <type_traits>

namespace {

// The layouts of `sys.rs`.
struct MacClock {
    uint64_t data[8];
    uint64_t time;
    uint8_t valid, last, bytes, damaged;
};

struct Inputs {
    MacClock mac[4];
    uint64_t data[8];
    uint64_t completion_data[4];
    uint32_t axil_wdata;
    uint16_t axil_awaddr, axil_araddr, length;
    uint8_t reset;
    uint8_t axil_awvalid, axil_wvalid, axil_arvalid;
    uint8_t valid, first, first_block, channel;
    uint8_t data_ready, slot_ready, read_ready;
    uint8_t completion_valid, completion_tag, completion_error;
    uint8_t notice_valid, notice_kind, notice_channel;
    uint8_t mac_clocks;
};

struct PcieInputs {
    uint64_t rc_data[8], cq_data[8];
    uint8_t rq_ready, rc_valid, rc_last, cq_valid, read_credits;
};

struct PcieOutputs {
    uint64_t rq_data[8];
    uint64_t rq_user;
    uint64_t cc_data[2];
    uint16_t rq_keep;
    uint8_t rq_valid, rc_ready, cq_ready, cc_valid, interrupt_valid, interrupt_channel;
};

// Writes are refused outside of addresses with these bits. REFUSED in memory.rs.
const uint64_t WINDOW_BASE = 0, WINDOW_MASK = (uint64_t{1} << 62) >> 12;

struct Outputs {
    uint64_t data[8];
    uint64_t slot_address[2];
    uint64_t slot_report;
    uint64_t read_address;
    uint32_t axil_rdata, slot_length;
    uint16_t slot_channel;
    uint8_t axil_awready, axil_arready, axil_bvalid, axil_bresp, axil_rvalid;
    uint8_t ready;
    uint8_t data_valid, data_keep;
    uint8_t slot_valid, slot_kind, slot_block;
    uint8_t read_valid, read_tag;
};

}  // namespace

struct Card {
    virtual ~Card() = default;
    virtual void tick(const Inputs& inputs, Outputs& outputs) = 0;
    virtual void tick_pcie(const PcieInputs& inputs, PcieOutputs& outputs) = 0;
};

namespace {

template <typename Top>
struct Simulation : Card {
    static constexpr bool is_port = std::is_same_v<Top, Vcard_port>;
    static constexpr bool is_ethernet = std::is_same_v<Top, Vcard_ethernet>;
    // Modules with frames in the clock of the MAC instead of packets.
    static constexpr bool has_mac = is_port || is_ethernet;
    // Modules with streams of the integrated block for PCIe instead of ports for writes, reads and registers.
    static constexpr bool has_pcie = is_ethernet || std::is_same_v<Top, Vcard_pcie>;

    VerilatedContext context;
    Top top;

    explicit Simulation(uint64_t seed) : top{randomized(context, seed)} {
        if constexpr (has_pcie) {
            top.window_base = WINDOW_BASE;
            top.window_mask = WINDOW_MASK;
            top.m_axis_cc_tready = 1;
            top.s_axis_cq_tlast = 1;
            // Neither a discontinuity nor a hint; bytes of the dword enabled.
            std::memset(&top.s_axis_rc_tuser, 0, sizeof top.s_axis_rc_tuser);
            std::memset(&top.s_axis_cq_tuser, 0, sizeof top.s_axis_cq_tuser);
            top.s_axis_cq_tuser[0] = 0xF;
        } else {
            top.s_axil_wstrb = 0xF;
            top.s_axil_bready = 1;
            top.s_axil_rready = 1;
        }
        top.eval();  // so that the asynchronous reset has an edge
        Inputs reset{};
        reset.reset = 1;
        reset.mac_clocks = 2;
        for (int clock = 0; clock < 8; clock++) tick_all(reset);
        // Its reset ends some clocks later.
        reset.reset = 0;
        for (int clock = 0; (has_mac || has_pcie) && clock < 8; clock++) tick_all(reset);
        shotline_rtl_failed = 0;  // those before the reset, with random registers, do not count
    }

    void tick_all(const Inputs& inputs) {
        Outputs outputs;
        PcieOutputs pcie_outputs;
        tick(inputs, outputs);
        tick_pcie(PcieInputs{}, pcie_outputs);
    }

    void tick(const Inputs& inputs, Outputs& outputs) override {
        set(inputs);
        top.clk = 0;
        top.eval();
        if constexpr (has_mac)
            for (int clock = 0; clock < inputs.mac_clocks; clock++) tick_mac(inputs.mac[clock]);
        get(outputs);
        top.clk = 1;
        top.eval();
    }

    void tick_mac(const MacClock& word) {
        top.time_tai = word.time;
        top.s_axis_tvalid = word.valid;
        top.s_axis_tlast = word.last;
        top.s_axis_tuser = word.damaged;
        top.s_axis_tkeep = word.bytes < 64 ? (uint64_t{1} << word.bytes) - 1 : ~uint64_t{0};
        std::memcpy(&top.s_axis_tdata, word.data, sizeof word.data);
        top.mac_clk = 0;
        top.eval();
        top.mac_clk = 1;
        top.eval();
    }

    void tick_pcie(const PcieInputs& inputs, PcieOutputs& outputs) override {
        if constexpr (has_pcie) {
            top.m_axis_rq_tready = inputs.rq_ready;
            top.pcie_tfc_nph_av = inputs.read_credits;
            top.s_axis_rc_tvalid = inputs.rc_valid;
            top.s_axis_rc_tlast = inputs.rc_last;
            std::memcpy(&top.s_axis_rc_tdata, inputs.rc_data, sizeof inputs.rc_data);
            top.s_axis_cq_tvalid = inputs.cq_valid;
            std::memcpy(&top.s_axis_cq_tdata, inputs.cq_data, sizeof inputs.cq_data);
            top.pcie_clk = 0;
            top.eval();
            std::memcpy(outputs.rq_data, &top.m_axis_rq_tdata, sizeof outputs.rq_data);
            std::memcpy(&outputs.rq_user, &top.m_axis_rq_tuser, sizeof outputs.rq_user);
            outputs.rq_keep = top.m_axis_rq_tkeep;
            outputs.rq_valid = top.m_axis_rq_tvalid;
            outputs.rc_ready = top.s_axis_rc_tready;
            outputs.cq_ready = top.s_axis_cq_tready;
            outputs.cc_valid = top.m_axis_cc_tvalid;
            std::memcpy(outputs.cc_data, &top.m_axis_cc_tdata, sizeof outputs.cc_data);
            outputs.interrupt_valid = top.interrupt_valid;
            outputs.interrupt_channel = top.interrupt_channel;
            top.pcie_clk = 1;
            top.eval();
        }
    }

    void set(const Inputs& inputs) {
        if constexpr (!has_pcie) set_bus(inputs);
        if constexpr (has_pcie) top.pcie_rst = inputs.reset;
        if constexpr (is_port) top.async_rst = inputs.reset;
        if constexpr (!is_port) top.rst = inputs.reset;
        if constexpr (!has_mac) {
            top.s_valid = inputs.valid;
            std::memcpy(&top.s_data, inputs.data, sizeof inputs.data);
            top.s_first = inputs.first;
            top.s_first_block = inputs.first_block;
            top.s_length = inputs.length;
            top.s_channel = inputs.channel;
        }
    }

    void set_bus(const Inputs& inputs) {
        top.s_axil_awaddr = inputs.axil_awaddr;
        top.s_axil_awvalid = inputs.axil_awvalid;
        top.s_axil_wdata = inputs.axil_wdata;
        top.s_axil_wvalid = inputs.axil_wvalid;
        top.s_axil_araddr = inputs.axil_araddr;
        top.s_axil_arvalid = inputs.axil_arvalid;
        top.m_data_ready = inputs.data_ready;
        top.m_slot_ready = inputs.slot_ready;
        top.m_read_ready = inputs.read_ready;
        top.s_completion_valid = inputs.completion_valid;
        top.s_completion_tag = inputs.completion_tag;
        std::memcpy(&top.s_completion_data, inputs.completion_data, sizeof inputs.completion_data);
        top.s_completion_error = inputs.completion_error;
        top.notice_valid = inputs.notice_valid;
        top.notice_kind = inputs.notice_kind;
        top.notice_channel = inputs.notice_channel;
    }

    void get(Outputs& outputs) {
        if constexpr (!has_pcie) get_bus(outputs);
        if constexpr (!has_mac) outputs.ready = top.s_ready;
    }

    void get_bus(Outputs& outputs) {
        outputs.axil_awready = top.s_axil_awready;
        outputs.axil_bvalid = top.s_axil_bvalid;
        outputs.axil_bresp = top.s_axil_bresp;
        outputs.axil_arready = top.s_axil_arready;
        outputs.axil_rvalid = top.s_axil_rvalid;
        outputs.axil_rdata = top.s_axil_rdata;
        outputs.data_valid = top.m_data_valid;
        std::memcpy(outputs.data, &top.m_data, sizeof outputs.data);
        outputs.data_keep = top.m_data_keep;
        outputs.slot_valid = top.m_slot_valid;
        outputs.slot_kind = top.m_slot_kind;
        std::memcpy(outputs.slot_address, &top.m_slot_address, sizeof outputs.slot_address);
        outputs.slot_length = top.m_slot_length;
        outputs.slot_block = top.m_slot_block;
        outputs.slot_channel = top.m_slot_channel;
        outputs.slot_report = top.m_slot_report;
        outputs.read_valid = top.m_read_valid;
        outputs.read_address = top.m_read_address;
        outputs.read_tag = top.m_read_tag;
    }
};

}  // namespace

extern "C" {

// `top` is a `Top` of `sys.rs`.
Card* shotline_card_new(int top, uint64_t seed) {
    if (top == 0) return new Simulation<Vcard>(seed);
    if (top == 1) return new Simulation<Vcard_small>(seed);
    if (top == 2) return new Simulation<Vcard_port>(seed);
    if (top == 3) return new Simulation<Vcard_pcie>(seed);
    return new Simulation<Vcard_ethernet>(seed);
}

void shotline_card_free(Card* card) { delete card; }

// Runs for one clock. The outputs are those before the rising edge at its end.
void shotline_card_tick(Card* card, const Inputs* inputs, Outputs* outputs) { card->tick(*inputs, *outputs); }

// Runs for one clock of the integrated block for PCIe.
void shotline_card_tick_pcie(Card* card, const PcieInputs* inputs, PcieOutputs* outputs) {
    card->tick_pcie(*inputs, *outputs);
}

}  // extern "C"
