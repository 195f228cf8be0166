// SPDX-License-Identifier: Apache-2.0
// A store of beats that gives out packets only once they are kept, and forgets those that are discarded. With
// ALWAYS_KEEP beats are given out as they come. One beat a cycle in and out; `m_*` is a register.
`default_nettype none

module packet_fifo #(
    parameter int N = 8,
    parameter int DEPTH = 512,  // a power of two
    parameter bit ALWAYS_KEEP = 1'b0
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [N-1:0] s_data,
    input wire logic s_valid,
    output logic s_ready,
    input wire logic keep,  // all that came before this cycle
    input wire logic discard,
    output logic [N-1:0] m_data,
    output logic m_valid,
    input wire logic m_ready
);
  localparam int PTR_W = $clog2(DEPTH);
  logic [N-1:0] mem[DEPTH];
  logic [PTR_W:0] in, kept, out, used;
  logic reads;

  assign used = in - out;
  assign s_ready = !used[PTR_W];
  assign reads = out != (ALWAYS_KEEP ? in : kept) && (!m_valid || m_ready);

  always_ff @(posedge clk) begin
    if (s_valid && s_ready) mem[in[PTR_W-1:0]] <= s_data;
    if (reads) m_data <= mem[out[PTR_W-1:0]];
  end

  always_ff @(posedge clk) begin
    if (s_valid && s_ready) in <= in + 1'b1;
    if (keep) kept <= in;
    if (discard) in <= kept;
    if (m_ready) m_valid <= 1'b0;
    if (reads) begin
      m_valid <= 1'b1;
      out <= out + 1'b1;
    end
    if (rst) begin
      in <= '0;
      kept <= '0;
      out <= '0;
      m_valid <= 1'b0;
    end
  end
endmodule

`default_nettype wire
