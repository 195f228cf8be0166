// SPDX-License-Identifier: Apache-2.0
// packet_fifo's pointers: places are never used twice, what is not kept is not given out, and a beat that the solver
// picks is given out with its own data, unless it is discarded. By induction, at a depth of 4.
module proof #(
    parameter N = 4
) (
    input wire clk,
    input wire rst,
    input wire [N-1:0] s_data,
    input wire s_valid,
    input wire keep,
    input wire discard,
    input wire m_ready
);
  wire s_ready, m_valid;
  wire [N-1:0] m_data;
  packet_fifo #(.N(N), .DEPTH(4)) dut (.*);
  (* hierconn *) wire [2:0] \dut.in , \dut.kept , \dut.out ;
  (* hierconn *) wire \dut.reads ;
  (* hierconn *) wire [N-1:0] \dut.mem[0] , \dut.mem[1] , \dut.mem[2] , \dut.mem[3] ;
  wire [4*N-1:0] mem = {\dut.mem[3] , \dut.mem[2] , \dut.mem[1] , \dut.mem[0] };

  wire [2:0] used = \dut.in - \dut.out ;
  wire [2:0] waiting = \dut.in - \dut.kept ;
  wire [2:0] ready = \dut.kept - \dut.out ;

  // One beat: from when it enters until it stands in the output register.
  (* anyseq *) reg picks;
  reg tracked = 0, shown = 0;
  reg [N-1:0] its_data;
  reg [2:0] its_place;
  wire enters = picks && s_valid && s_ready && !discard && !tracked && !shown;
  wire leaves = tracked && \dut.reads && \dut.out == its_place;
  wire [2:0] place_in_line = its_place - \dut.out ;
  wire is_kept = place_in_line < ready;
  always @(posedge clk) begin
    if (enters) begin
      tracked <= 1;
      its_data <= s_data;
      its_place <= \dut.in ;
    end
    if (tracked && (leaves || (discard && !is_kept))) tracked <= 0;
    if (leaves) shown <= 1;
    else if (m_ready) shown <= 0;
    if (rst) begin
      tracked <= 0;
      shown <= 0;
    end
  end

  reg started = 0;
  always @(posedge clk) started <= 1;
  always @(*) begin
    if (!started) assume (rst);
    assume (!(keep && discard));
    if (started) begin
      assert (used <= 4 && ready <= used && waiting == used - ready);
      assert (s_ready == (used < 4));
      if (tracked) assert (place_in_line < used && mem[N*its_place[1:0] +: N] == its_data);
      if (leaves) assert (is_kept);
      if (\dut.reads ) assert (ready != 0);
      if (shown) assert (m_valid && m_data == its_data);
    end
  end
endmodule
