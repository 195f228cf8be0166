// SPDX-License-Identifier: Apache-2.0
// A packet's bytes to groups of the codec inceptionn (layout burst): per 8 floats u16 tags and what stands for them;
// the last group may be shorter; a packet's last 1 to 3 bytes that are no float follow as they are.
// A packet has 1 to 65535 bytes; n floats take at most 4 n + 2 ceil(n / 8). Bound and mode are taken with its first
// beat. Latency, from a lone group's beat to the beat that carries it, in enabled cycles: 12 at 256 bits, 13 at 128
// and 512, 14 at 64 (there from the group's last beat).
`default_nettype none

module compress #(
    parameter int W = 256,
    localparam int B = W / 8,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,
    localparam int TREE = LANES / GROUPS,
    localparam int LEVELS = $clog2(TREE),
    localparam int LEN_W = LEVELS + 3
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic cfg_literal,
    input wire logic [6:0] cfg_bound,
    input wire logic [W-1:0] s_axis_tdata,
    input wire logic [B-1:0] s_axis_tkeep,
    input wire logic s_axis_tvalid,
    output logic s_axis_tready,
    input wire logic s_axis_tlast,
    output logic [W-1:0] m_axis_tdata,
    output logic [B-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire logic m_axis_tready,
    output logic m_axis_tlast,
    output logic [16:0] m_axis_tuser  // with tlast: {decoding gives the packet back, its bytes}; else 0
);
  logic en, join_ready;
  logic [LEVELS+3:0] valid;  // of the stages below: A, B, two of the lanes, the tree's
  assign en = join_ready || !valid[LEVELS+3];
  assign s_axis_tready = en;

  always_ff @(posedge clk) begin
    if (en) valid <= {valid[LEVELS+2:0], s_axis_tvalid};
    if (rst) valid <= '0;
  end

  // A: as it came.
  logic [W-1:0] a_data;
  logic [B-1:0] a_keep;
  logic a_first, a_last, at_first;
  logic a_literal;
  logic [6:0] a_bound;
  always_ff @(posedge clk) begin
    if (en) begin
      a_data <= s_axis_tdata;
      a_keep <= s_axis_tkeep;
      a_last <= s_axis_tlast;
      a_first <= at_first;
      a_literal <= cfg_literal;
      a_bound <= cfg_bound;
      if (s_axis_tvalid) at_first <= s_axis_tlast;
    end
    if (rst) at_first <= 1'b1;
  end

  // B: bytes counted, edges of the classes known.
  logic [7:0] e_low, e_middle, e_top, shift1, shift2;
  logic [39:0] edges;
  class_edges edges_of_a (
      .literal(a_literal),
      .bound(a_bound),
      .e_low(e_low),
      .e_middle(e_middle),
      .e_top(e_top),
      .shift1(shift1),
      .shift2(shift2)
  );

  logic [15:0] a_bytes, total, total_now;
  logic [B-1:0] a_end;  // one bit: the last byte's
  always_comb begin
    a_end = a_keep & ~(a_keep >> 1);
    a_bytes = 16'b0;
    for (int i = 0; i < B; i++) if (a_end[i]) a_bytes = a_bytes | 16'(i + 1);
    total_now = (a_first ? 16'b0 : total) + a_bytes;
  end

  logic [W-1:0] b_data;
  logic [3*LANES-1:0] b_lane_bytes;
  logic b_first, b_last;
  always_ff @(posedge clk) begin
    if (en) begin
      if (valid[0] && a_first) edges <= {e_low, e_middle, e_top, shift1, shift2};
      if (valid[0]) total <= total_now;
      b_data <= a_data;
      b_first <= a_first;
      b_last <= a_last;
      for (int i = 0; i < LANES; i++) begin
        b_lane_bytes[3*i+:3] <= a_keep[4*i+3] ? 3'd4 : a_keep[4*i+2] ? 3'd3 : a_keep[4*i+1] ? 3'd2
                              : a_keep[4*i] ? 3'd1 : 3'd0;
      end
    end
  end

  // The compression units, two stages.
  logic [2*LANES-1:0] lane_tags;
  logic [3*LANES-1:0] lane_bytes;
  logic [W-1:0] lane_data;
  logic [LANES-1:0] lane_exact;
  for (genvar i = 0; i < LANES; i++) begin : lane
    quantise unit (
        .clk(clk),
        .en(en),
        .e_low(edges[39:32]),
        .e_middle(edges[31:24]),
        .e_top(edges[23:16]),
        .shift1(edges[15:8]),
        .shift2(edges[7:0]),
        .x(b_data[32*i+:32]),
        .x_bytes(b_lane_bytes[3*i+:3]),
        .tag(lane_tags[2*i+:2]),
        .bytes(lane_bytes[3*i+:3]),
        .data(lane_data[32*i+:32]),
        .exact(lane_exact[i])
    );
  end

  logic [GROUPS-1:0] b_tagged, c_tagged;
  logic c_first, c_last;
  logic [15:0] c_total;
  for (genvar g = 0; g < GROUPS; g++) begin : tagged_of
    assign b_tagged[g] = b_lane_bytes[3*8*g+2];
  end
  pipe #(
      .N(GROUPS + 18),
      .DEPTH(2)
  ) with_lanes (
      .clk(clk),
      .en (en),
      .in ({b_tagged, b_first, b_last, total}),
      .out({c_tagged, c_first, c_last, c_total})
  );

  logic exact, exact_now;
  assign exact_now = (c_first || exact) && (&lane_exact);
  always_ff @(posedge clk) if (en && valid[3]) exact <= exact_now;

  // The shifter trees.
  logic [W-1:0] tree_data;
  logic [LEN_W*GROUPS-1:0] tree_bytes;
  logic [2*LANES-1:0] tree_tags;
  logic [GROUPS-1:0] tree_tagged;
  logic tree_last;
  logic [16:0] tree_info;
  for (genvar g = 0; g < GROUPS; g++) begin : tree
    shift_tree #(
        .LANES(TREE)
    ) join_lanes (
        .clk(clk),
        .en(en),
        .lane_data(lane_data[32*TREE*g+:32*TREE]),
        .lane_bytes(lane_bytes[3*TREE*g+:3*TREE]),
        .data(tree_data[32*TREE*g+:32*TREE]),
        .bytes(tree_bytes[LEN_W*g+:LEN_W])
    );
  end
  pipe #(
      .N(2 * LANES + GROUPS + 18),
      .DEPTH(LEVELS)
  ) with_tree (
      .clk(clk),
      .en (en),
      .in ({lane_tags, c_tagged, c_last, exact_now, c_total}),
      .out({tree_tags, tree_tagged, tree_last, tree_info})
  );

  // Tags in front, and on to full beats.
  logic [W+16*GROUPS-1:0] piece;
  logic [$clog2(B):0] piece_bytes;
  logic piece_last, piece_valid, piece_ready;
  logic [16:0] piece_info;
  group_join #(
      .W(W)
  ) tags_in_front (
      .clk(clk),
      .rst(rst),
      .in_data(tree_data),
      .in_bytes(tree_bytes),
      .in_tags(tree_tags),
      .in_tagged(tree_tagged),
      .in_last(tree_last),
      .in_info(tree_info),
      .in_valid(valid[LEVELS+3]),
      .in_ready(join_ready),
      .out_data(piece),
      .out_bytes(piece_bytes),
      .out_last(piece_last),
      .out_info(piece_info),
      .out_valid(piece_valid),
      .out_ready(piece_ready)
  );

  logic [W-1:0] beat;
  logic [B-1:0] beat_keep;
  logic beat_last, beat_valid, beat_ready;
  logic [16:0] beat_info;
  align #(
      .W(W)
  ) to_beats (
      .clk(clk),
      .rst(rst),
      .in_data(piece),
      .in_bytes(piece_bytes),
      .in_last(piece_last),
      .in_info(piece_info),
      .in_valid(piece_valid),
      .in_ready(piece_ready),
      .out_data(beat),
      .out_keep(beat_keep),
      .out_last(beat_last),
      .out_info(beat_info),
      .out_valid(beat_valid),
      .out_ready(beat_ready)
  );

  axis_skid #(
      .N(W + B + 18)
  ) out_skid (
      .clk(clk),
      .rst(rst),
      .s_data({beat_info, beat_last, beat_keep, beat}),
      .s_valid(beat_valid),
      .s_ready(beat_ready),
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
      .USER_W(17)
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
