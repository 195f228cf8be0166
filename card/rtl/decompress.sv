// SPDX-License-Identifier: Apache-2.0
// What `compress` writes, back to the packet's bytes. How many there are, bound and mode come with a packet's first
// beat. Damaged packets end with tuser 1 on their last beat and are never longer than that length.
// Latency, from a lone group's beat to the beat that carries its values, in enabled cycles: 14 at 256 and 512 bits,
// 13 at 128, 12 at 64 (to the first of the group's beats).
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
  logic [LEVELS+4:0] valid;

  // One behind the other: cut, to the front, tags off, to the lanes, to values.
  localparam int FRONT_W = 32 * TREE + 16;
  localparam int FRONT_INFO_W = 9 * GROUPS + 3 * LANES + 2;
  logic [WINDOW-1:0] window;
  logic [START_W*GROUPS-1:0] start;
  logic [GROUPS-1:0] has_tags;
  logic [8*GROUPS-1:0] has_value;
  logic [3*LANES-1:0] x_bytes0;
  logic [7:0] shift1_0, shift2_0, shift1, shift2;
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
      .has_tags(has_tags),
      .has_value(has_value),
      .x_bytes(x_bytes0),
      .shift1(shift1_0),
      .shift2(shift2_0),
      .last(last0),
      .bad(bad0),
      .valid(valid0)
  );

  always_ff @(posedge clk) begin
    if (en) valid <= {valid[LEVELS+3:0], valid0};
    if (rst) valid <= '0;
  end

  logic [FRONT_W*GROUPS-1:0] front;
  for (genvar g = 0; g < GROUPS; g++) begin : group_front
    extract #(
        .IN_W(WINDOW),
        .OUT_W(FRONT_W),
        .START_W(START_W)
    ) to_front (
        .clk(clk),
        .en(en),
        .data(window),
        .start(start[START_W*g+:START_W]),
        .out(front[FRONT_W*g+:FRONT_W])
    );
  end
  logic [FRONT_INFO_W-1:0] front_info;
  pipe #(
      .N(FRONT_INFO_W),
      .DEPTH(2)
  ) with_extract (
      .clk(clk),
      .en (en),
      .in ({has_tags, has_value, x_bytes0, last0, bad0}),
      .out(front_info)
  );
  pipe #(
      .N(16),
      .DEPTH(LEVELS + 3)
  ) shifts (
      .clk(clk),
      .en (en),
      .in ({shift1_0, shift2_0}),
      .out({shift1, shift2})
  );

  logic [W-1:0] packed_lanes, lanes;
  logic [2*LANES-1:0] tags3;
  logic [3*LANES-1:0] sizes3, x_bytes3;
  logic last3, bad3;
  tag_decoder #(
      .W(W)
  ) decoder (
      .clk(clk),
      .rst(rst),
      .en(en),
      .in_valid(valid[1]),
      .in_front(front),
      .in_has_tags(front_info[FRONT_INFO_W-1-:GROUPS]),
      .in_has_value(front_info[3*LANES+2+:8*GROUPS]),
      .in_x_bytes(front_info[2+:3*LANES]),
      .in_last(front_info[1]),
      .in_bad(front_info[0]),
      .data(packed_lanes),
      .tags(tags3),
      .sizes(sizes3),
      .x_bytes(x_bytes3),
      .last(last3),
      .bad(bad3)
  );

  for (genvar g = 0; g < GROUPS; g++) begin : group
    split_tree #(
        .LANES(TREE)
    ) to_lanes (
        .clk(clk),
        .en(en),
        .data(packed_lanes[32*TREE*g+:32*TREE]),
        .lane_bytes(sizes3[3*TREE*g+:3*TREE]),
        .lane_data(lanes[32*TREE*g+:32*TREE])
    );
  end
  logic [2*LANES-1:0] tags;
  logic [3*LANES-1:0] x_bytes, x_bytes_out;
  logic last, bad, last_out, bad_out;
  pipe #(
      .N(5 * LANES + 2),
      .DEPTH(LEVELS)
  ) with_tree (
      .clk(clk),
      .en (en),
      .in ({tags3, x_bytes3, last3, bad3}),
      .out({tags, x_bytes, last, bad})
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
  assign en = out_ready || !valid[LEVELS+4];
  axis_skid #(
      .N(W + B + 2)
  ) out_skid (
      .clk(clk),
      .rst(rst),
      .s_data({bad_out, last_out, keep, x}),
      .s_valid(valid[LEVELS+4]),
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
