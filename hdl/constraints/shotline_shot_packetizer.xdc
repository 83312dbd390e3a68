# Timing constraints of shot_packetizer's clock domain crossings, for Vivado: an example that has not been run in Vivado yet.
# Read it for the module (read_xdc -ref shotline_shot_packetizer), so that the patterns match only within its instances.
#
# The clocks are defined at their sources: the AFE interface (120 MHz), the processing clock (160 to 200 MHz) and the CMAC
# (322.27 MHz). At the top of a trial synthesis:
#
#   create_clock -name afe_clk -period 8.333 [get_ports afe_clk]
#   create_clock -name clk     -period 5.000 [get_ports clk]
#   create_clock -name mac_clk -period 3.103 [get_ports mac_clk]
#
# The domains are asynchronous, but set_clock_groups -asynchronous would override the limits below: it has precedence over
# set_max_delay. Every crossing is constrained here by its registers, and report_cdc must show no other path.
# A limit is one period of the fastest clock.

# Gray pointers of fifo_async (head_fifo, afe_fifo, commands, cmac_fifo/words) and the count of frames: all bits of a pointer
# must arrive within one period of its source, so that at most one bit is in transition at any time.
set write_gray  [get_cells -hier -regexp {.*cdc_write_gray_reg\[\d+\]}]
set write_chain [get_cells -hier -regexp {.*cdc_chain_m_reg\[\d+\]}]
set read_gray   [get_cells -hier -regexp {.*cdc_read_gray_reg\[\d+\]}]
set read_chain  [get_cells -hier -regexp {.*cdc_chain_s_reg\[\d+\]}]
set frame_count [get_cells -hier -regexp {.*cmac_fifo/published_reg\[\d+\]}]
set frame_chain [get_cells -hier -regexp {.*cmac_fifo/cdc_chain_m_reg\[\d+\]}]
set_max_delay -datapath_only 3.1 -from $write_gray -to $write_chain
set_max_delay -datapath_only 3.1 -from $read_gray -to $read_chain
set_max_delay -datapath_only 3.1 -from $frame_count -to $frame_chain
set_bus_skew 3.1 -from $write_gray -to $write_chain
set_bus_skew 3.1 -from $read_gray -to $read_chain
set_bus_skew 3.1 -from $frame_count -to $frame_chain

# Memories written in one domain and read in the other. Block RAM has a clock for each port and no path to constrain; a FIFO
# mapped to LUT RAM (head_fifo, commands) reads a word that has been stable for two clocks of the reader.
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*(head_fifo|commands)/memory_reg.*}] -to [get_cells -hier -regexp {.*(head_fifo|commands)/out_data_reg\[\d+\]}]

# Request and acknowledge toggles of cdc_word (to_decoder, to_window), and the words that they transfer. A word is held until
# the acknowledge returns, and sampled two clocks of the receiver after the request toggled.
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*to_(decoder|window)/req_reg}] -to [get_cells -hier -regexp {.*to_(decoder|window)/req_1_reg}]
set_max_delay -datapath_only 3.1 -from [get_cells -hier -regexp {.*to_(decoder|window)/ack_reg}] -to [get_cells -hier -regexp {.*to_(decoder|window)/ack_1_reg}]
set_max_delay -datapath_only 6.2 -from [get_cells -hier -regexp {.*to_(decoder|window)/cdc_word_hold_reg\[\d+\]}] -to [get_cells -hier -regexp {.*to_(decoder|window)/word_reg\[\d+\]}]

# The trigger input, and the asynchronous side of the reset synchronisers.
set_false_path -to [get_cells -hier -regexp {.*pin_sync/cdc_chain_reg\[0\]}]
set_false_path -to [get_pins -hier -regexp {.*reset(_afe|_mac)?/cdc_reset_chain_reg\[\d+\]/(PRE|CLR)}]

# The sources set ASYNC_REG on the flip-flops of every synchroniser (cdc_sync, cdc_reset, fifo_async, cdc_word): Vivado then
# places a chain's flip-flops next to each other and does not map them to shift registers.
