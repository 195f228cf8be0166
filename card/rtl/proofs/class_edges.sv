// SPDX-License-Identifier: Apache-2.0
// class_edges: for every bound and mode the edges and units of the definition, in whole numbers with signs: the middle
// is min(-floor(b / 2), 7 - b) and the top min(0, 15 - b), literal -floor(b / 2) and 0; q counts 2^(middle - 7) and
// 2^(top - 15), literal 2^-7 and 2^-15.
module proof (
    input wire literal,
    input wire [6:0] bound
);
  wire [7:0] e_low, e_middle, e_top, shift1, shift2;
  class_edges dut (.*);
  integer b, middle, top;
  always @(*) begin
    b = (bound == 0) ? 1 : (bound > 100) ? 100 : bound;
    middle = -(b >> 1);
    top = 0;
    if (!literal && 7 - b < middle) middle = 7 - b;
    if (!literal && 15 - b < top) top = 15 - b;
    assert (e_low == 127 - b);
    assert (e_middle == 127 + middle);
    assert (e_top == 127 + top);
    assert (e_low <= e_middle && e_middle <= e_top);
    assert (shift1 == (literal ? -7 : middle - 7) + 150);
    assert (shift2 == (top - 15) + 150);
    assert (shift1 - e_middle >= 16);  // a byte loses at least 17 bits, two bytes 9
    assert (shift2 - e_top == 8);
  end
endmodule
