// SPDX-License-Identifier: Apache-2.0
// A delay of DEPTH enabled cycles, for what accompanies a pipeline.
`default_nettype none

module pipe #(
    parameter int N = 8,
    parameter int DEPTH = 1
) (
    input wire logic clk,
    input wire logic en,
    input wire logic [N-1:0] in,
    output logic [N-1:0] out
);
  logic [N*DEPTH-1:0] stages;

  always_ff @(posedge clk) begin
    if (en) begin
      for (int i = 0; i < DEPTH; i++) stages[N*i+:N] <= (i == 0) ? in : stages[N*((i==0)?0:i-1)+:N];
    end
  end
  assign out = stages[N*(DEPTH-1)+:N];
endmodule

`default_nettype wire
