// C interface of the model, at the level of whole frames; it contains the loop over clocks.
#include "../runtime.h"
#include "Vsender.h"
#include "vcd.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace {

constexpr size_t WORD = 64;

struct Shot {
    uint64_t number;
    uint64_t time;
    uint32_t stream;
    uint32_t event;
    uint8_t flags;
};

struct Input {
    Shot shot;
    std::vector<uint8_t> bytes;
};

// Clocks in which the other side of a port is idle: random (a probability of `chance` in 65536), and one range.
struct Pauses {
    uint32_t chance = 0;
    uint64_t from = 0;
    uint64_t until = 0;
};

}  // namespace

struct Sender {
    VerilatedContext context;
    Vsender top;
    uint64_t cycles = 0;
    uint64_t random;
    Pauses input_pauses, output_pauses;

    std::deque<Input> inputs;
    size_t sent = 0;  // bytes of the oldest input that were accepted
    bool offering = false;
    uint64_t input_words = 0;

    std::vector<uint8_t> bytes;    // concatenated frames
    std::vector<uint64_t> ends;    // offset of each frame's end
    std::vector<uint64_t> clocks;  // clock in which its last word left
    uint64_t output_words = 0;
    uint64_t last_output = 0;
    std::unique_ptr<Vcd> trace;

    explicit Sender(uint64_t seed) : top{randomized(context, seed)}, random(seed * 2 + 1) {
        // Inputs start with random values, too.
        top.s_axil_awvalid = 0;
        top.s_axil_wvalid = 0;
        top.s_axil_arvalid = 0;
        top.s_axil_bready = 1;
        top.s_axil_rready = 1;
        top.rst = 1;
        for (int clock = 0; clock < 4; clock++) tick();
        top.rst = 0;
        tick();
        shotline_rtl_failed = 0;  // those before the reset, with random registers, do not count
    }

    uint32_t chance() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>(random >> 40) & 0xFFFF;
    }

    bool paused(const Pauses& pauses) {
        return (cycles >= pauses.from && cycles < pauses.until) || (pauses.chance != 0 && chance() < pauses.chance);
    }

    void offer() {
        const Input& input = inputs.front();
        const size_t left = input.bytes.size() - sent;
        const size_t now = left < WORD ? left : WORD;
        const bool first = sent == 0;
        std::memcpy(&top.s_axis_tdata, input.bytes.data() + sent, now);
        if (now < WORD) {
            // Lanes without `tkeep` may have any value.
            for (size_t lane = now; lane < WORD; lane++)
                reinterpret_cast<uint8_t*>(&top.s_axis_tdata)[lane] = static_cast<uint8_t>(chance());
        }
        top.s_axis_tkeep = now == WORD ? ~uint64_t{0} : (uint64_t{1} << now) - 1;
        top.s_axis_tlast = left <= WORD;
        top.s_axis_tuser = left > WORD;  // only valid with the last word: must be ignored before
        // The shot's metadata is only valid with its first word.
        top.s_shot_number = first ? input.shot.number : ~input.shot.number;
        top.s_shot_time = first ? input.shot.time : ~input.shot.time;
        top.s_shot_stream = first ? input.shot.stream : ~input.shot.stream;
        top.s_shot_event = first ? input.shot.event : ~input.shot.event;
        top.s_shot_flags = first ? input.shot.flags : static_cast<uint8_t>(~input.shot.flags);
    }

    void tick() {
        if (!offering && !inputs.empty() && !paused(input_pauses)) {
            offer();
            offering = true;
        }
        top.s_axis_tvalid = offering;
        top.m_axis_tready = !paused(output_pauses);
        top.clk = 0;
        top.eval();
        if (trace) trace->sample(cycles);

        const bool running = !top.rst;
        if (running && top.s_axis_tvalid && top.s_axis_tready) {
            input_words++;
            offering = false;
            sent += WORD;
            if (sent >= inputs.front().bytes.size()) {
                inputs.pop_front();
                sent = 0;
            }
        }
        if (running && top.m_axis_tvalid && top.m_axis_tready) {
            const auto* word = reinterpret_cast<const uint8_t*>(&top.m_axis_tdata);
            const size_t now = top.m_axis_tlast ? __builtin_popcountll(top.m_axis_tkeep) : WORD;
            bytes.insert(bytes.end(), word, word + now);
            output_words++;
            last_output = cycles;
            if (top.m_axis_tlast) {
                ends.push_back(bytes.size());
                clocks.push_back(cycles);
            }
        }
        top.clk = 1;
        top.eval();
        cycles++;
    }
};

extern "C" {

Sender* shotline_rtl_new(uint64_t seed) {
    return new Sender(seed);
}

void shotline_rtl_free(Sender* sender) { delete sender; }

// Starts to trace the ports to a file; returns 0 if it cannot be created.
int shotline_rtl_trace(Sender* sender, const char* path) {
    Vsender& top = sender->top;
    auto trace = std::make_unique<Vcd>(path);
    if (!trace->is_open()) return 0;
    trace->port("s_axil_awaddr", 12, &top.s_axil_awaddr);
    trace->port("s_axil_awvalid", 1, &top.s_axil_awvalid);
    trace->port("s_axil_wdata", 32, &top.s_axil_wdata);
    trace->port("s_axil_bvalid", 1, &top.s_axil_bvalid);
    trace->port("s_axis_tdata", 512, &top.s_axis_tdata);
    trace->port("s_axis_tkeep", 64, &top.s_axis_tkeep);
    trace->port("s_axis_tvalid", 1, &top.s_axis_tvalid);
    trace->port("s_axis_tready", 1, &top.s_axis_tready);
    trace->port("s_axis_tlast", 1, &top.s_axis_tlast);
    trace->port("s_shot_number", 64, &top.s_shot_number);
    trace->port("m_axis_tdata", 512, &top.m_axis_tdata);
    trace->port("m_axis_tkeep", 64, &top.m_axis_tkeep);
    trace->port("m_axis_tvalid", 1, &top.m_axis_tvalid);
    trace->port("m_axis_tready", 1, &top.m_axis_tready);
    trace->port("m_axis_tlast", 1, &top.m_axis_tlast);
    trace->port("busy", 1, &top.busy);
    sender->trace = std::move(trace);
    return 1;
}

// Queues an input frame of at least one byte.
void shotline_rtl_send(Sender* sender, const Shot* shot, const uint8_t* bytes, size_t length) {
    sender->inputs.push_back(Input{*shot, std::vector<uint8_t>(bytes, bytes + length)});
}

// Runs for `cycles` clocks, until `frames` frames are stored, no word has left for `quiet` clocks, or, if
// `inputs_accepted` is set, all inputs have been accepted.
void shotline_rtl_run(Sender* sender, uint64_t cycles, size_t frames, uint64_t quiet, int inputs_accepted) {
    const uint64_t end = sender->cycles + cycles;
    const uint64_t begin = sender->cycles;
    while (sender->cycles < end && sender->ends.size() < frames && !(inputs_accepted && sender->inputs.empty())) {
        const uint64_t since = sender->last_output > begin ? sender->last_output : begin;
        if (sender->cycles - since > quiet) break;
        sender->tick();
    }
}

// Returns the response, 0 for OKAY.
uint32_t shotline_rtl_write(Sender* sender, uint16_t address, uint32_t value) {
    Vsender& top = sender->top;
    top.s_axil_awaddr = address;
    top.s_axil_wdata = value;
    top.s_axil_wstrb = 0xF;
    top.s_axil_awvalid = 1;
    top.s_axil_wvalid = 1;
    sender->tick();  // no other write is outstanding, so it is accepted at once
    top.s_axil_awvalid = 0;
    top.s_axil_wvalid = 0;
    while (!top.s_axil_bvalid) sender->tick();
    const uint32_t response = top.s_axil_bresp;
    sender->tick();
    return response;
}

uint32_t shotline_rtl_read(Sender* sender, uint16_t address) {
    Vsender& top = sender->top;
    top.s_axil_araddr = address;
    top.s_axil_arvalid = 1;
    sender->tick();
    top.s_axil_arvalid = 0;
    while (!top.s_axil_rvalid) sender->tick();
    const uint32_t value = top.s_axil_rdata;
    sender->tick();
    return value;
}

void shotline_rtl_pause(Sender* sender, int output, uint32_t chance, uint64_t from, uint64_t until) {
    (output ? sender->output_pauses : sender->input_pauses) = Pauses{chance, from, until};
}

uint64_t shotline_rtl_cycles(const Sender* sender) { return sender->cycles; }
uint64_t shotline_rtl_input_words(const Sender* sender) { return sender->input_words; }
uint64_t shotline_rtl_output_words(const Sender* sender) { return sender->output_words; }
size_t shotline_rtl_waiting(const Sender* sender) { return sender->inputs.size(); }

// The frames that were sent; the pointers are valid until the next call of another function.
size_t shotline_rtl_frames(const Sender* sender) { return sender->ends.size(); }
const uint8_t* shotline_rtl_bytes(const Sender* sender) { return sender->bytes.data(); }
const uint64_t* shotline_rtl_ends(const Sender* sender) { return sender->ends.data(); }
const uint64_t* shotline_rtl_clocks(const Sender* sender) { return sender->clocks.data(); }

// Discards the oldest `count` frames.
void shotline_rtl_discard(Sender* sender, size_t count) {
    if (count == 0) return;
    const uint64_t cut = sender->ends[count - 1];
    sender->bytes.erase(sender->bytes.begin(), sender->bytes.begin() + static_cast<ptrdiff_t>(cut));
    sender->ends.erase(sender->ends.begin(), sender->ends.begin() + static_cast<ptrdiff_t>(count));
    sender->clocks.erase(sender->clocks.begin(), sender->clocks.begin() + static_cast<ptrdiff_t>(count));
    for (auto& end : sender->ends) end -= cut;
}

}  // extern "C"
