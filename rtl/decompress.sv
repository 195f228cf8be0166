// SPDX-License-Identifier: Apache-2.0
// What `compress` writes, back to the packet's bytes. How many there are, bound and mode come with a packet's first
// beat. Damaged packets end with tuser 1 on their last beat and are never longer than that length.
// Latency, from a lone group's beat to the beat that carries its values, in enabled cycles: 11 at 256 and 512 bits,
// 10 at 128, 9 at 64 (to the first of the group's beats).
`default_nettype none

module decompress #(
    parameter int W = 256,
    localparam int B = W / 8,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,
    localparam int TREE = LANES / GROUPS,
    localparam int LEVELS = $clog2(TREE),
    localparam int START_W = $clog2(B) + 1,
    localparam int WINDOW = 2 * W + 16 * GROUPS
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [W-1:0] s_axis_tdata,
    input wire logic [B-1:0] s_axis_tkeep,
    input wire logic s_axis_tvalid,
    output logic s_axis_tready,
    input wire logic s_axis_tlast,
    input wire logic [23:0] s_axis_tuser,  // with the first beat: {literal, bound, bytes of the packet}
    output logic [W-1:0] m_axis_tdata,
    output logic [B-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire logic m_axis_tready,
    output logic m_axis_tlast,
    output logic m_axis_tuser  // with tlast: the packet is damaged
);
  logic en, valid0;
  logic [LEVELS+3:0] valid;

  logic [WINDOW-1:0] window;
  logic [START_W*GROUPS-1:0] start;
  logic [2*LANES-1:0] tags0;
  logic [3*LANES-1:0] sizes0, x_bytes0;
  logic [7:0] shift1_0, shift2_0;
  logic last0, bad0;
  burst_buffer #(
      .W(W)
  ) buffer (
      .clk(clk),
      .rst(rst),
      .s_axis_tdata(s_axis_tdata),
      .s_axis_tkeep(s_axis_tkeep),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_axis_tready),
      .s_axis_tlast(s_axis_tlast),
      .s_axis_tuser(s_axis_tuser),
      .en(en),
      .window(window),
      .start(start),
      .tags(tags0),
      .sizes(sizes0),
      .x_bytes(x_bytes0),
      .shift1(shift1_0),
      .shift2(shift2_0),
      .last(last0),
      .bad(bad0),
      .valid(valid0)
  );

  always_ff @(posedge clk) begin
    if (en) valid <= {valid[LEVELS+2:0], valid0};
    if (rst) valid <= '0;
  end

  // The values' bytes to the front, then to their lanes.
  logic [W-1:0] front, lanes;
  logic [3*LANES-1:0] sizes2;
  pipe #(
      .N(3 * LANES),
      .DEPTH(2)
  ) with_extract (
      .clk(clk),
      .en (en),
      .in (sizes0),
      .out(sizes2)
  );
  for (genvar g = 0; g < GROUPS; g++) begin : group
    extract #(
        .IN_W(WINDOW),
        .OUT_W(32 * TREE),
        .START_W(START_W)
    ) to_front (
        .clk(clk),
        .en(en),
        .data(window),
        .start(start[START_W*g+:START_W]),
        .out(front[32*TREE*g+:32*TREE])
    );
    split_tree #(
        .LANES(TREE)
    ) to_lanes (
        .clk(clk),
        .en(en),
        .data(front[32*TREE*g+:32*TREE]),
        .lane_bytes(sizes2[3*TREE*g+:3*TREE]),
        .lane_data(lanes[32*TREE*g+:32*TREE])
    );
  end

  logic [2*LANES-1:0] tags;
  logic [3*LANES-1:0] x_bytes, x_bytes_out;
  logic [7:0] shift1, shift2;
  logic last, bad, last_out, bad_out;
  pipe #(
      .N(5 * LANES + 18),
      .DEPTH(LEVELS + 2)
  ) with_tree (
      .clk(clk),
      .en (en),
      .in ({tags0, x_bytes0, shift1_0, shift2_0, last0, bad0}),
      .out({tags, x_bytes, shift1, shift2, last, bad})
  );

  // The decompression units.
  logic [W-1:0] x;
  for (genvar i = 0; i < LANES; i++) begin : lane
    dequantise unit (
        .clk(clk),
        .en(en),
        .shift1(shift1),
        .shift2(shift2),
        .tag(tags[2*i+:2]),
        .x_bytes(x_bytes[3*i+:3]),
        .data(lanes[32*i+:32]),
        .x(x[32*i+:32])
    );
  end
  pipe #(
      .N(3 * LANES + 2),
      .DEPTH(2)
  ) with_lanes (
      .clk(clk),
      .en (en),
      .in ({x_bytes, last, bad}),
      .out({x_bytes_out, last_out, bad_out})
  );

  logic [B-1:0] keep;
  logic out_ready;
  for (genvar i = 0; i < LANES; i++) begin : keep_of
    logic [2:0] n;
    assign n = x_bytes_out[3*i+:3];
    assign keep[4*i+:4] = {n[2], n[2] || n == 3'd3, n[2] || n[1], n != 3'd0};
  end
  assign en = out_ready || !valid[LEVELS+3];
  axis_skid #(
      .N(W + B + 2)
  ) out_skid (
      .clk(clk),
      .rst(rst),
      .s_data({bad_out, last_out, keep, x}),
      .s_valid(valid[LEVELS+3]),
      .s_ready(out_ready),
      .m_data({m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata}),
      .m_valid(m_axis_tvalid),
      .m_ready(m_axis_tready)
  );

`ifndef SYNTHESIS
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) s_rules (
      .clk(clk),
      .rst(rst),
      .tdata(s_axis_tdata),
      .tkeep(s_axis_tkeep),
      .tvalid(s_axis_tvalid),
      .tready(s_axis_tready),
      .tlast(s_axis_tlast),
      .tuser(1'b0)
  );
  axis_rules #(
      .W(W),
      .USER_W(1)
  ) m_rules (
      .clk(clk),
      .rst(rst),
      .tdata(m_axis_tdata),
      .tkeep(m_axis_tkeep),
      .tvalid(m_axis_tvalid),
      .tready(m_axis_tready),
      .tlast(m_axis_tlast),
      .tuser(m_axis_tuser)
  );
`endif
endmodule

`default_nettype wire
