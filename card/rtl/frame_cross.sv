// SPDX-License-Identifier: Apache-2.0
// Frames from one clock to another, whole: the first beat of one is given out once its last was taken. A frame that its
// MAC says is damaged (tuser with tlast) goes no further. Without WAITS the source is never held up, as a MAC cannot
// be, and a frame for which there is no room is lost; with it only one that is longer than the store is.
// Both resets are held together, for some cycles of the slower clock. Pointers cross in Gray code, through two
// registers: what a constraint has to say is that each of these paths is shorter than a cycle of either clock.
`default_nettype none

module frame_cross #(
    parameter int W = 256,
    parameter int STORE = 16384,  // bytes, a power of two
    parameter bit WAITS = 1'b0,
    localparam int B = W / 8
) (
    input wire logic s_clk,
    input wire logic s_rst,
    input wire logic [W-1:0] s_axis_tdata,
    input wire logic [B-1:0] s_axis_tkeep,
    input wire logic s_axis_tvalid,
    output logic s_axis_tready,
    input wire logic s_axis_tlast,
    input wire logic s_axis_tuser,  // with tlast: the frame is damaged
    output logic ev_damaged,  // one cycle each
    output logic ev_lost,
    input wire logic m_clk,
    input wire logic m_rst,
    output logic [W-1:0] m_axis_tdata,
    output logic [B-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire logic m_axis_tready,
    output logic m_axis_tlast
);
  localparam int DEPTH = STORE / B;
  localparam int PTR_W = $clog2(DEPTH);
  typedef logic [PTR_W:0] ptr_t;

  function automatic ptr_t to_gray(input ptr_t p);
    to_gray = p ^ (p >> 1);
  endfunction
  function automatic ptr_t of_gray(input ptr_t g);
    of_gray = g;
    for (int i = PTR_W - 1; i >= 0; i--) of_gray[i] = of_gray[i+1] ^ g[i];
  endfunction

  logic [W+B:0] mem[DEPTH];
  ptr_t shown_gray, out_gray;

  // Where beats come: `begins` is behind the last whole frame, and `shown` follows it beat by beat, so that one bit of
  // its code changes at a time.
  ptr_t in, begins, shown, out_gray1, out_gray2, out_here, used;
  logic full, overflows, loses, takes;
  assign out_here = of_gray(out_gray2);
  assign used = in - out_here;
  assign full = used[PTR_W];
  assign overflows = full && (!WAITS || begins == out_here);
  assign s_axis_tready = !full || overflows || loses;
  assign takes = s_axis_tvalid && s_axis_tready;

  always_ff @(posedge s_clk) if (takes && !full) mem[in[PTR_W-1:0]] <= {s_axis_tlast, s_axis_tkeep, s_axis_tdata};
  always_ff @(posedge s_clk) begin
    {out_gray2, out_gray1} <= {out_gray1, out_gray};
    {ev_damaged, ev_lost} <= 2'b00;
    if (takes && loses) begin
      loses <= !s_axis_tlast;
    end else if (takes && overflows) begin
      in <= begins;
      loses <= !s_axis_tlast;
      ev_lost <= 1'b1;
    end else if (takes) begin
      in <= in + 1'b1;
      if (s_axis_tlast && s_axis_tuser) begin
        in <= begins;
        ev_damaged <= 1'b1;
      end else if (s_axis_tlast) begin
        begins <= in + 1'b1;
      end
    end
    if (shown != begins) shown <= shown + 1'b1;
    shown_gray <= to_gray(shown);
    if (s_rst) begin
      {in, begins, shown, shown_gray, out_gray1, out_gray2} <= '0;
      loses <= 1'b0;
    end
  end

  // Where they leave.
  ptr_t out, shown_gray1, shown_gray2;
  logic reads;
  assign reads = out != of_gray(shown_gray2) && (!m_axis_tvalid || m_axis_tready);
  always_ff @(posedge m_clk) begin
    if (reads) {m_axis_tlast, m_axis_tkeep, m_axis_tdata} <= mem[out[PTR_W-1:0]];
  end
  always_ff @(posedge m_clk) begin
    {shown_gray2, shown_gray1} <= {shown_gray1, shown_gray};
    if (m_axis_tready) m_axis_tvalid <= 1'b0;
    if (reads) begin
      m_axis_tvalid <= 1'b1;
      out <= out + 1'b1;
    end
    out_gray <= to_gray(out);
    if (m_rst) begin
      {out, out_gray, shown_gray1, shown_gray2} <= '0;
      m_axis_tvalid <= 1'b0;
    end
  end
endmodule

`default_nettype wire
