// SPDX-License-Identifier: Apache-2.0
// Puts the tags of each group of 8 values in front of its bytes. What goes out are pieces, to be set one behind the
// other: at 256 bits a group each, at 512 two groups, at 64 and 128 a quarter and half of one, where the first waits
// for the tags of all. A group without a whole value (a packet's last 1 to 3 bytes) has no tags.
// Latency 1 at 256 bits, 2 at 512; at 64 and 128, 2 from a group's last piece on.
`default_nettype none

module group_join #(
    parameter int W = 256,
    localparam int LANES = W / 32,
    localparam int GROUPS = (W > 256) ? W / 256 : 1,  // in one piece
    localparam int PARTS = (W < 256) ? 256 / W : 1,  // of one group
    localparam int LEN_W = (W < 256) ? $clog2(W / 8) + 1 : 6,
    localparam int PIECE_W = W + 16 * GROUPS,
    localparam int PIECE_LEN_W = $clog2(W / 8) + 1,
    localparam int INFO_W = 17
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [W-1:0] in_data,
    input wire logic [LEN_W*GROUPS-1:0] in_bytes,
    input wire logic [2*LANES-1:0] in_tags,
    input wire logic [GROUPS-1:0] in_tagged,  // at 64 and 128 bits: of a group's first part
    input wire logic in_last,
    input wire logic [INFO_W-1:0] in_info,
    input wire logic in_valid,
    output logic in_ready,
    output logic [PIECE_W-1:0] out_data,
    output logic [PIECE_LEN_W-1:0] out_bytes,
    output logic out_last,
    output logic [INFO_W-1:0] out_info,
    output logic out_valid,
    input wire logic out_ready
);
  if (PARTS > 1) begin : narrow
    localparam int DEPTH = 2 * PARTS;
    localparam int PTR_W = $clog2(DEPTH);
    localparam int PART_W = $clog2(PARTS);

    // Parts wait here until their group's tags are known.
    logic [W+INFO_W+LEN_W+1:0] part_mem[DEPTH];  // ends a group, last, info, bytes, data
    logic [PTR_W:0] part_in, part_out;
    logic [16:0] tags_mem[DEPTH];
    logic [PTR_W:0] tags_in, tags_out;
    logic [PTR_W:0] part_count;

    logic [PART_W-1:0] part;
    logic [15:0] tags_so_far, tags_now;
    logic tagged_first, tagged_now, ends_group, takes;

    assign part_count = part_in - part_out;
    assign in_ready = part_count != DEPTH[PTR_W:0];
    assign takes = in_valid && in_ready;
    assign ends_group = in_last || (&part);
    assign tagged_now = (part == '0) ? in_tagged[0] : tagged_first;
    always_comb begin
      tags_now = tags_so_far;
      tags_now[2*LANES*part+:2*LANES] = in_tags;
    end

    always_ff @(posedge clk) begin
      if (takes) begin
        part_mem[part_in[PTR_W-1:0]] <= {ends_group, in_last, in_info, in_bytes, in_data};
        if (ends_group) tags_mem[tags_in[PTR_W-1:0]] <= {tagged_now, tags_now};
        part_in <= part_in + 1'b1;
        part <= ends_group ? '0 : part + 1'b1;
        tags_so_far <= ends_group ? 16'b0 : tags_now;
        tagged_first <= tagged_now;
        if (ends_group) tags_in <= tags_in + 1'b1;
      end
      if (rst) begin
        part_in <= '0;
        tags_in <= '0;
        part <= '0;
        tags_so_far <= 16'b0;
      end
    end

    logic in_group, reads, has_tags, read_ends, read_last, is_tagged;
    logic [15:0] tags;
    logic [INFO_W-1:0] read_info;
    logic [LEN_W-1:0] read_bytes;
    logic [W-1:0] read_data;

    assign {read_ends, read_last, read_info, read_bytes, read_data} = part_mem[part_out[PTR_W-1:0]];
    assign {is_tagged, tags} = tags_mem[tags_out[PTR_W-1:0]];
    assign has_tags = !in_group && is_tagged;
    assign reads = (in_group || tags_in != tags_out) && (!out_valid || out_ready);

    always_ff @(posedge clk) begin
      if (out_ready) out_valid <= 1'b0;
      if (reads) begin
        out_valid <= 1'b1;
        out_data <= has_tags ? {read_data, tags} : {16'b0, read_data};
        out_bytes <= read_bytes + (has_tags ? PIECE_LEN_W'(2) : '0);
        out_last <= read_last;
        out_info <= read_info;
        part_out <= part_out + 1'b1;
        in_group <= !read_ends;
        if (!in_group) tags_out <= tags_out + 1'b1;
      end
      if (rst) begin
        out_valid <= 1'b0;
        part_out <= '0;
        tags_out <= '0;
        in_group <= 1'b0;
      end
    end
  end else begin : wide
    logic [272*GROUPS-1:0] group;
    logic [PIECE_LEN_W*GROUPS-1:0] group_bytes;
    for (genvar g = 0; g < GROUPS; g++) begin : each
      assign group[272*g+:272] = in_tagged[g] ? {in_data[256*g+:256], in_tags[16*g+:16]}
                                              : {16'b0, in_data[256*g+:256]};
      assign group_bytes[PIECE_LEN_W*g+:PIECE_LEN_W] =
          PIECE_LEN_W'(in_bytes[LEN_W*g+:LEN_W]) + (in_tagged[g] ? PIECE_LEN_W'(2) : '0);
    end

    if (GROUPS == 1) begin : one
      assign in_ready = !out_valid || out_ready;
      always_ff @(posedge clk) begin
        if (in_ready) begin
          out_valid <= in_valid;
          out_data <= group;
          out_bytes <= group_bytes;
          out_last <= in_last;
          out_info <= in_info;
        end
        if (rst) out_valid <= 1'b0;
      end
    end else begin : two
      logic [543:0] both;
      logic [13:0] both_bytes;
      logic valid1, last1;
      logic [INFO_W-1:0] info1;
      assign in_ready = !out_valid || out_ready;
      always_ff @(posedge clk) begin
        if (in_ready) begin
          valid1 <= in_valid;
          both <= group;
          both_bytes <= group_bytes;
          last1 <= in_last;
          info1 <= in_info;
          out_valid <= valid1;
          out_data <= {272'b0, both[271:0]} | ({272'b0, both[543:272]} << {both_bytes[6:0], 3'b0});
          out_bytes <= both_bytes[6:0] + both_bytes[13:7];
          out_last <= last1;
          out_info <= info1;
        end
        if (rst) begin
          valid1 <= 1'b0;
          out_valid <= 1'b0;
        end
      end
    end
  end
endmodule

`default_nettype wire
