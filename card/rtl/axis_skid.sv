// SPDX-License-Identifier: Apache-2.0
// Two places between a source and a sink: full rate, and no path within a cycle from one side to the other.
// Latency 1.
`default_nettype none

module axis_skid #(
    parameter int N = 8  // bits of all that travels with a beat
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [N-1:0] s_data,
    input wire logic s_valid,
    output logic s_ready,
    output logic [N-1:0] m_data,
    output logic m_valid,
    input wire logic m_ready
);
  logic [N-1:0] spare;
  logic has_spare;
  logic out_moves;

  assign out_moves = !m_valid || m_ready;
  assign s_ready = !has_spare;

  always_ff @(posedge clk) begin
    if (out_moves) begin
      m_data <= has_spare ? spare : s_data;
      m_valid <= has_spare || s_valid;
      has_spare <= 1'b0;
    end else if (s_valid && !has_spare) begin
      has_spare <= 1'b1;
    end
    if (!has_spare) spare <= s_data;
    if (rst) begin
      m_valid <= 1'b0;
      has_spare <= 1'b0;
    end
  end
endmodule

`default_nettype wire
