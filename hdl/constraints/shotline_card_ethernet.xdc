# Timing constraints of card_ethernet's clock domain crossings, for Vivado: an example that has not been run in Vivado yet.
# Read it for the module (read_xdc -ref shotline_card_ethernet), so that the patterns match only within its instances.
#
# The clocks are defined at their sources: the MAC (322.27 MHz), the DMA module's clock (200 MHz) and the PCIe block's user
# clock (250 MHz). At the top of a trial synthesis:
#
#   create_clock -name mac_clk  -period 3.103 [get_ports mac_clk]
#   create_clock -name clk      -period 5.000 [get_ports clk]
#   create_clock -name pcie_clk -period 4.000 [get_ports pcie_clk]
#
# The domains are asynchronous, but set_clock_groups -asynchronous would override the limits below: it has precedence over
# set_max_delay. Every crossing is constrained here by its registers, and report_cdc must show no other path.
# A limit is one period of the fastest clock.

# Gray pointers of fifo_async (port/crossing, port/registers/crossing, pcie/beats, the lanes, entries, reads and notices of
# pcie/requests): all bits of a pointer must arrive within one period of its source, so that at most one bit is in
# transition at any time.
set write_gray  [get_cells -hier -regexp {.*cdc_write_gray_reg\[\d+\]}]
set write_chain [get_cells -hier -regexp {.*cdc_chain_m_reg\[\d+\]}]
set read_gray   [get_cells -hier -regexp {.*cdc_read_gray_reg\[\d+\]}]
set read_chain  [get_cells -hier -regexp {.*cdc_chain_s_reg\[\d+\]}]
set_max_delay -datapath_only 3.1 -from $write_gray -to $write_chain
set_max_delay -datapath_only 3.1 -from $read_gray -to $read_chain
set_bus_skew 3.1 -from $write_gray -to $write_chain
set_bus_skew 3.1 -from $read_gray -to $read_chain

# Memories written in one domain and read in the other. A FIFO mapped to LUT RAM reads a word that has been stable for two
# clocks of the reader; block RAM (LANE_LOG2 above 8, perhaps) has a clock for each port and no path to constrain.
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*port/(registers/)?crossing/memory_reg.*}] -to [get_cells -hier -regexp {.*port/(registers/)?crossing/out_data_reg\[\d+\]}]
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*pcie/beats/memory_reg.*}] -to [get_cells -hier -regexp {.*pcie/beats/out_data_reg\[\d+\]}]
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*pcie/requests/(g_lane\[\d\]\.lane|entries|reads|notices)/memory_reg.*}] -to [get_cells -hier -regexp {.*pcie/requests/(g_lane\[\d\]\.lane|entries|reads|notices)/out_data_reg\[\d+\]}]

# Request and acknowledge toggles of cdc_word (port/registers/counts, pcie/host/to_registers, pcie/host/to_host), and the words
# that they transfer. A word is held until the acknowledge returns, and sampled two clocks of the receiver after the request
# toggled. The key and the table of the distributor need nothing: they go through the FIFO port/registers/crossing.
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*(counts|to_registers|to_host)/req_reg}] -to [get_cells -hier -regexp {.*(counts|to_registers|to_host)/req_1_reg}]
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*(counts|to_registers|to_host)/ack_reg}] -to [get_cells -hier -regexp {.*(counts|to_registers|to_host)/ack_1_reg}]
set_max_delay -datapath_only 6.2 -from [get_cells -hier -regexp {.*(counts|to_registers|to_host)/cdc_word_hold_reg\[\d+\]}] -to [get_cells -hier -regexp {.*(counts|to_registers|to_host)/word_reg\[\d+\]}]

# The asynchronous side of the reset synchronisers: of the input, and of the domains in the port and in the adapter.
set_false_path -to [get_pins -hier -regexp {.*reset(_input|_mac|_stream)?/cdc_reset_chain_reg\[\d+\]/(PRE|CLR)}]

# Drive window_base and window_mask from constants or from registers of clk. From registers of another clock, which do not change
# while channels run, at the top:
#
#   set_false_path -from [get_cells {NAMES OF THE REGISTERS}]

# The sources set ASYNC_REG on the flip-flops of every synchroniser (cdc_reset, fifo_async, cdc_word): Vivado then places a
# chain's flip-flops next to each other and does not map them to shift registers.
