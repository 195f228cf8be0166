// SPDX-License-Identifier: Apache-2.0
// A pipeline without feedback whose inputs stay as they are, long after: each register has what stands before it.
(* techmap_celltype = "$dff" *)
module steady_dff (CLK, D, Q);
  parameter WIDTH = 1;
  parameter CLK_POLARITY = 1;
  input CLK;
  input [WIDTH-1:0] D;
  output [WIDTH-1:0] Q;
  assign Q = D;
endmodule
