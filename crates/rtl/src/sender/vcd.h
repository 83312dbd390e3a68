// Writer of the model's ports as a VCD file (IEEE 1364-2005, clause 18). Its clock has 200 MHz.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

class Vcd {
  public:
    explicit Vcd(const char* path) : file(std::fopen(path, "w")) {}
    ~Vcd() {
        if (file) std::fclose(file);
    }
    Vcd(const Vcd&) = delete;
    Vcd& operator=(const Vcd&) = delete;
    bool is_open() const { return file != nullptr; }

    // Adds a port of `bits` bits, whose value is at this address. Must be called before the first sample.
    void port(const char* name, unsigned bits, const void* at) { ports.push_back(Port{name, bits, at, {}}); }

    // Writes the values before a rising edge of the clock, and the edge.
    void sample(uint64_t cycle) {
        if (!begun) begin();
        std::fprintf(file, "#%llu\n0!\n", static_cast<unsigned long long>(cycle * 10));
        for (size_t index = 0; index < ports.size(); index++) ports[index].write(file, index);
        std::fprintf(file, "#%llu\n1!\n", static_cast<unsigned long long>(cycle * 10 + 5));
    }

  private:
    struct Port {
        const char* name;
        unsigned bits;
        const void* at;
        std::vector<uint8_t> last;

        // The least significant byte is first.
        void write(std::FILE* file, size_t index) {
            const auto* bytes = static_cast<const uint8_t*>(at);
            const size_t size = (bits + 7) / 8;
            if (last.size() == size && std::memcmp(last.data(), bytes, size) == 0) return;
            last.assign(bytes, bytes + size);
            std::string text(bits, '0');
            for (unsigned bit = 0; bit < bits; bit++)
                if (bytes[bit / 8] >> (bit % 8) & 1) text[bits - 1 - bit] = '1';
            std::fprintf(file, bits > 1 ? "b%s p%zu\n" : "%sp%zu\n", text.c_str(), index);
        }
    };

    void begin() {
        begun = true;
        std::fprintf(file, "$timescale 500 ps $end\n$scope module shotline_roce_ud_tx $end\n$var wire 1 ! clk $end\n");
        for (size_t index = 0; index < ports.size(); index++)
            std::fprintf(file, "$var wire %u p%zu %s $end\n", ports[index].bits, index, ports[index].name);
        std::fprintf(file, "$upscope $end\n$enddefinitions $end\n");
    }

    std::FILE* file;
    std::vector<Port> ports;
    bool begun = false;
};
