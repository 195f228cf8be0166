// SPDX-License-Identifier: Apache-2.0
// OUT_W bits of IN_W, from a given byte on. Latency 2.
`default_nettype none

module extract #(
    parameter int IN_W = 528,
    parameter int OUT_W = 256,
    parameter int START_W = 6
) (
    input wire logic clk,
    input wire logic en,
    input wire logic [IN_W-1:0] data,
    input wire logic [START_W-1:0] start,
    output logic [OUT_W-1:0] out
);
  localparam int HIGH = START_W - 3;
  logic [IN_W-1:0] data1;
  logic [HIGH-1:0] start1;

  always_ff @(posedge clk) begin
    if (en) begin
      data1 <= data >> {start[2:0], 3'b0};
      start1 <= start[START_W-1:3];
      out <= OUT_W'(data1 >> {start1, 6'b0});
    end
  end
endmodule

`default_nettype wire
