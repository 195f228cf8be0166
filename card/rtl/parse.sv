// SPDX-License-Identifier: Apache-2.0
// What a frame's first HEAD bytes say: Ethernet with up to two VLAN tags, IPv4 with options or IPv6 without extension
// headers, TCP with options or UDP, and the card's own two protocols with their shim. Watches a stream of beats and
// then reads one word a cycle: 8 to 13 cycles a frame, in which no beat may come. `plain` frames are those of another
// kind: fragments, contradictory lengths, headers that are cut, SYN and RST.
`default_nettype none

module parse #(
    parameter int W = 256,
    localparam int B = W / 8
) (
    input wire logic clk,
    input wire logic rst,
    input wire logic [W-1:0] s_data,
    input wire logic [B-1:0] s_keep,
    input wire logic s_last,
    input wire logic s_valid,  // a beat goes by
    output logic can_take,
    output logic valid,
    input wire logic ready,
    output logic plain,
    output logic is_packed,  // protocols 253 and 254
    output logic is_v6,
    output logic is_udp,
    output logic [5:0] dscp,
    output logic [7:0] l3,  // offsets in the frame
    output logic [7:0] l4,
    output logic [7:0] payload,
    output logic [15:0] ip_end,
    output logic [15:0] ip_length,  // IPv4: total, IPv6: payload
    output logic [15:0] hop_word,  // IPv4: time to live, protocol; IPv6: next header, hop limit
    output logic [15:0] ip_checksum,
    output logic [15:0] l4_checksum,
    output logic [31:0] shim,  // its first four bytes
    output logic [15:0] shim_checksum
);
  localparam int HEAD = 192;
  localparam int BEATS = HEAD / B;
  localparam int AT_W = $clog2(BEATS + 1);

  // The head, as it goes by.
  logic [8*HEAD-1:0] head;
  logic [AT_W-1:0] beat;
  logic in_frame_rest;  // the head is whole and the frame is not
  logic whole;
  logic [8:0] got, got_now;
  logic [B-1:0] last_byte;

  always_comb begin
    last_byte = s_keep & ~(s_keep >> 1);
    got_now = 9'd0;
    for (int i = 0; i < B; i++) if (last_byte[i]) got_now = got_now | 9'(i + 1);
  end

  typedef enum logic [3:0] {
    HEADS, ETHERTYPE, V4_FIRST, V4_LENGTH, V4_FRAGMENT, V4_HOP, V4_SUM, V6_FIRST, V6_LENGTH, V6_HOP,
    L4_FIRST, L4_SUM, SHIM_FIRST, SHIM_LENGTH, SHIM_SUM, DONE
  } state_t;
  state_t state;
  logic [7:0] at;
  logic [15:0] word;
  logic [1:0] vlans;
  logic [7:0] protocol;
  logic is_tcp_now;

  assign word = {head[{at[7:1], 4'b0}+:8], head[{at[7:1], 4'b1000}+:8]};  // headers begin at even places
  assign whole = s_last || beat == AT_W'(BEATS - 1);
  assign can_take = state == HEADS || in_frame_rest;
  assign valid = state == DONE;
  assign is_tcp_now = protocol == 8'd6 || protocol == 8'd253;

  always_ff @(posedge clk) begin
    if (s_valid && !in_frame_rest) begin
      for (int i = 0; i < BEATS; i++) if (beat == AT_W'(i)) head[W*i+:W] <= s_data;
      got <= got + got_now;
      beat <= beat + 1'b1;
      if (whole) begin
        state <= ETHERTYPE;
        at <= 8'd12;
        in_frame_rest <= !s_last;
        vlans <= 2'd0;
        plain <= 1'b0;
      end
    end
    if (s_valid && in_frame_rest && s_last) in_frame_rest <= 1'b0;

    case (state)
      ETHERTYPE: begin
        at <= at + 8'd2;
        l3 <= at + 8'd2;
        is_v6 <= word == 16'h86dd;
        state <= (word == 16'h86dd) ? V6_FIRST : V4_FIRST;
        if (word == 16'h8100 || word == 16'h88a8) begin
          at <= at + 8'd4;
          vlans <= vlans + 2'd1;
          state <= ETHERTYPE;
          if (vlans == 2'd2) begin
            plain <= 1'b1;
            state <= DONE;
          end
        end else if (word != 16'h0800 && word != 16'h86dd) begin
          plain <= 1'b1;
          state <= DONE;
        end
      end
      V4_FIRST: begin
        if (word[15:12] != 4'd4 || word[11:8] < 4'd5) plain <= 1'b1;
        dscp <= word[7:2];
        l4 <= l3 + {2'b0, word[11:8], 2'b0};
        at <= l3 + 8'd2;
        state <= V4_LENGTH;
      end
      V4_LENGTH: begin
        ip_length <= word;
        ip_end <= {8'b0, l3} + word;
        if (word[15:14] != 2'd0) plain <= 1'b1;
        at <= l3 + 8'd6;
        state <= V4_FRAGMENT;
      end
      V4_FRAGMENT: begin
        if ((word & 16'hbfff) != 16'd0) plain <= 1'b1;
        at <= l3 + 8'd8;
        state <= V4_HOP;
      end
      V4_HOP: begin
        hop_word <= word;
        protocol <= word[7:0];
        at <= l3 + 8'd10;
        state <= V4_SUM;
      end
      V4_SUM: begin
        ip_checksum <= word;
        at <= l4 + (is_tcp_now ? 8'd12 : 8'd4);
        state <= L4_FIRST;
      end
      V6_FIRST: begin
        if (word[15:12] != 4'd6) plain <= 1'b1;
        dscp <= word[11:6];
        l4 <= l3 + 8'd40;
        at <= l3 + 8'd4;
        state <= V6_LENGTH;
      end
      V6_LENGTH: begin
        ip_length <= word;
        ip_end <= {8'b0, l4} + word;
        if (word[15:14] != 2'd0) plain <= 1'b1;
        ip_checksum <= 16'd0;
        at <= l3 + 8'd6;
        state <= V6_HOP;
      end
      V6_HOP: begin
        hop_word <= word;
        protocol <= word[15:8];
        at <= l4 + ((word[15:8] == 8'd6 || word[15:8] == 8'd253) ? 8'd12 : 8'd4);
        state <= L4_FIRST;
      end
      L4_FIRST: begin
        is_udp <= !is_tcp_now;
        is_packed <= protocol == 8'd253 || protocol == 8'd254;
        if (is_tcp_now) begin
          if (word[15:12] < 4'd5 || word[2:1] != 2'd0) plain <= 1'b1;  // SYN, RST
          payload <= l4 + {2'b0, word[15:12], 2'b0};
          at <= l4 + 8'd16;
        end else begin
          if (word != ip_end - {8'b0, l4}) plain <= 1'b1;
          payload <= l4 + 8'd8;
          at <= l4 + 8'd6;
        end
        if (!is_tcp_now && protocol != 8'd17 && protocol != 8'd254) plain <= 1'b1;
        state <= L4_SUM;
      end
      L4_SUM: begin
        l4_checksum <= word;
        if ({1'b0, payload} > got || {8'b0, payload} >= ip_end) plain <= 1'b1;
        at <= payload;
        state <= is_packed ? SHIM_FIRST : DONE;
      end
      SHIM_FIRST: begin
        shim[31:16] <= word;
        if ({1'b0, payload} + 9'd8 > got || {8'b0, payload} + 16'd8 >= ip_end) plain <= 1'b1;
        at <= payload + 8'd2;
        state <= SHIM_LENGTH;
      end
      SHIM_LENGTH: begin
        shim[15:0] <= word;
        at <= payload + 8'd4;
        state <= SHIM_SUM;
      end
      SHIM_SUM: begin
        shim_checksum <= word;
        at <= payload + 8'd6;
        state <= DONE;
      end
      DONE: begin
        if (ready) begin
          state <= HEADS;
          beat <= '0;
          got <= 9'd0;
        end
      end
      default: ;
    endcase
    if (rst) begin
      state <= HEADS;
      in_frame_rest <= 1'b0;
      beat <= '0;
      got <= 9'd0;
    end
  end
endmodule

`default_nettype wire
