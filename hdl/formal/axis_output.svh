// The rules of an AXI-Stream output, for the modules that include this: what is offered stays, unchanged, until it is taken.
// The includer says what `F_CLK`, `F_RST`, `F_VALID`, `F_READY` and `F_WORD` (all that must stay) are.
logic f_rules_started = 1'b0;
always_ff @(posedge `F_CLK) begin
    f_rules_started <= 1'b1;
    if (f_rules_started && !`F_RST && $past(!`F_RST && `F_VALID && !`F_READY)) begin
        assert (`F_VALID);
        assert ($stable(`F_WORD));
    end
end
