// SPDX-License-Identifier: Apache-2.0
// The shifter tree: the bytes of LANES lanes side by side, without holes. Each level joins neighbours:
// left | right << bytes of left. Bytes past a lane's own are 0, so OR suffices. Latency log2(LANES).
`default_nettype none

module shift_tree #(
    parameter int LANES = 8,
    localparam int LEVELS = $clog2(LANES)
) (
    input wire logic clk,
    input wire logic en,
    input wire logic [32*LANES-1:0] lane_data,
    input wire logic [3*LANES-1:0] lane_bytes,  // 0..4 each
    output logic [32*LANES-1:0] data,
    output logic [LEVELS+2:0] bytes
);
  for (genvar l = 0; l < LEVELS; l++) begin : level
    localparam int NODES = LANES >> (l + 1);
    localparam int IN_W = 32 << l;
    localparam int IN_LEN = 3 + l;
    logic [2*NODES*IN_W-1:0] in_data;
    logic [2*NODES*IN_LEN-1:0] in_bytes;
    logic [2*NODES*IN_W-1:0] out_data;
    logic [NODES*(IN_LEN+1)-1:0] out_bytes;

    if (l == 0) begin : first
      assign in_data = lane_data;
      assign in_bytes = lane_bytes;
    end else begin : other
      assign in_data = level[l-1].out_data;
      assign in_bytes = level[l-1].out_bytes;
    end

    for (genvar n = 0; n < NODES; n++) begin : node
      logic [IN_W-1:0] left, right;
      logic [IN_LEN-1:0] left_bytes, right_bytes;
      assign left = in_data[2*n*IN_W+:IN_W];
      assign right = in_data[(2*n+1)*IN_W+:IN_W];
      assign left_bytes = in_bytes[2*n*IN_LEN+:IN_LEN];
      assign right_bytes = in_bytes[(2*n+1)*IN_LEN+:IN_LEN];
      always_ff @(posedge clk) begin
        if (en) begin
          out_data[2*n*IN_W+:2*IN_W] <= {{IN_W{1'b0}}, left} | ({{IN_W{1'b0}}, right} << {left_bytes, 3'b0});
          out_bytes[n*(IN_LEN+1)+:IN_LEN+1] <= {1'b0, left_bytes} + {1'b0, right_bytes};
        end
      end
    end
  end

  assign data = level[LEVELS-1].out_data;
  assign bytes = level[LEVELS-1].out_bytes;
endmodule

`default_nettype wire
