// AXI4-Stream source rules, for inclusion: an offered word stays, unchanged, until it is accepted. The including file
// defines `F_CLK`, `F_RST`, `F_VALID`, `F_READY` and `F_WORD` (everything that must stay stable).
logic f_rules_started = 1'b0;
always_ff @(posedge `F_CLK) begin
    f_rules_started <= 1'b1;
    if (f_rules_started && !`F_RST && $past(!`F_RST && `F_VALID && !`F_READY)) begin
        assert (`F_VALID);
        assert ($stable(`F_WORD));
    end
end
