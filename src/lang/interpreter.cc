// SPDX-License-Identifier: Apache-2.0
#include "lang/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/finite.h"
#include "codec/common/payload.h"
#include "codec/sparse/select.h"
#include "lang/fields.h"
#include "lang/reduce.h"

namespace tithe::lang {

namespace {

using Memory = std::unique_ptr<std::uint8_t[]>;
Memory memory_of(const Schedule& schedule) {
  return std::make_unique_for_overwrite<std::uint8_t[]>(schedule.bytes + 64);
}

std::uint64_t key_of(const Call& call, std::uint64_t seed) {
  return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
}

bool all_finite(const float* v, std::size_t count) {
  std::uint32_t peak = 0;
  for (std::size_t i = 0; i < count; ++i)
    peak = std::max(peak, std::bit_cast<std::uint32_t>(v[i]) & 0x7fffffffU);
  return peak < 0x7f800000U;
}

// One call at work: a program's registers, and where it is among the values.
class Machine {
 public:
  Machine(const Combination& of, std::string_view name, const Call& call, std::size_t n, std::uint8_t* memory)
      : program_(of.program),
        schedule_(of.schedule),
        name_(name),
        call_(call),
        registers_(program_, schedule_, memory) {
    given_ = {.settings = &call.settings,
              .n = n,
              .key = key_of(call, call.seed),
              .shared_key = key_of(call, call.shared_seed)};
    registers_.compute_once(schedule_.plan, given_);
    for (std::size_t k = 0; k < program_.nodes.size(); ++k) {
      if (program_.nodes[k].op == Op::kTaken) taken_.push_back(static_cast<int>(k));
      if (program_.nodes[k].op == Op::kGrad) grad_.push_back(static_cast<int>(k));
    }
  }

  // Calls of(first, len, bytes) for each block, in order; stops at the first Status that is not ok.
  template <typename Of>
  Status blocks(const Of& of) {
    const std::size_t n = given_.n, length = program_.block == 0 ? n : program_.block;
    std::size_t at = once_bytes(program_);
    for (std::size_t first = 0; first < std::max<std::size_t>(n, program_.block == 0 ? 1 : 0);
         first += std::max<std::size_t>(length, 1)) {
      const std::size_t len = std::min(length, n - first);
      given_.length = len;
      TITHE_TRY(of(first, len, at));
      at += block_bytes(program_, len);
    }
    return {};
  }

  void put_once(std::uint8_t* out) const {
    for (const Item& item : program_.items)
      if (item.once) out = put_number(item, *registers_.of<std::uint32_t>(item.value), out);
  }

  Status encode_block(const Carry& in, std::size_t first, std::size_t len, std::uint8_t* out, bool& finite) {
    bool found = true;
    for (const Pass& pass : schedule_.passes) {
      registers_.compute_once(pass.block, given_);
      std::vector<Reduction> reductions(pass.reduce.size());
      runs(first, len, [&](std::size_t at, std::size_t count) {
        take(in, at, count);
        found = found && all_finite(taken_now_, count);
        registers_.compute_values(pass.value, given_, count);
        for (std::size_t r = 0; r < reductions.size(); ++r)
          reductions[r].add(registers_, pass.reduce[r], count);
      });
      if (!found) return nothing(in, first, len, out, finite);
      for (std::size_t r = 0; r < reductions.size(); ++r) {
        reductions[r].finish(registers_, pass.reduce[r]);
        if (schedule_.filled[static_cast<std::size_t>(pass.reduce[r])]) registers_.fill(pass.reduce[r]);
      }
    }
    registers_.compute_once(schedule_.send.block, given_);
    std::uint8_t* to = out;
    for (const Item& item : program_.items) {
      if (item.once) continue;
      if (!item.array) {
        const std::uint32_t bits = *registers_.of<std::uint32_t>(item.value);
        if (item.is_float) finite = finite && is_finite(std::bit_cast<float>(bits));
        put_number(item, bits, to);
        receive(item, &bits, 1);
      }
      to += item_bytes(item, len);
    }
    registers_.compute_once(schedule_.read.block, given_);
    if (finite) TITHE_TRY(holds(Stage::kBlock, 1, Code::kUnsupported, first));
    Status broken;
    runs(first, len, [&](std::size_t at, std::size_t count) {
      take(in, at, count);
      const bool sound = all_finite(taken_now_, count);
      finite = finite && sound;
      registers_.compute_values(schedule_.send.value, given_, count);
      to = out;
      for (const Item& item : program_.items) {
        if (item.once) continue;
        if (item.array) {
          const std::uint32_t* values = registers_.of<std::uint32_t>(item.value);
          if (item.is_float) finite = finite && all_finite(registers_.of<float>(item.value), count);
          pack(values, count, item.bits, to + (at - first) * item.bits / 8);
          receive(item, values, count);
        }
        to += item_bytes(item, len);
      }
      registers_.compute_values(schedule_.read.value, given_, count);
      if (sound && finite && broken.ok()) broken = holds(Stage::kValue, count, Code::kUnsupported, first);
      finite = leave(in, at, count) && finite;
    });
    return broken;
  }

  // Numbers of one block of a payload to registers.
  void read_block(const std::uint8_t* block, std::size_t len, const Pass& pass) {
    for (const Item& item : program_.items) {
      if (item.once) continue;
      if (!item.array && item.input != kNone) {
        const std::uint32_t bits = get_number(item, block);
        receive(item, &bits, 1);
      }
      block += item_bytes(item, len);
    }
    registers_.compute_once(pass.block, given_);
  }
  void read_run(const std::uint8_t* block, std::size_t len, std::size_t at, std::size_t count,
                const Pass& pass) {
    for (const Item& item : program_.items) {
      if (item.once) continue;
      if (item.array && item.input != kNone)
        unpack(block + at * item.bits / 8, count, item.bits, registers_.of<std::uint32_t>(item.input));
      block += item_bytes(item, len);
    }
    registers_.compute_values(pass.value, given_, count);
  }

  Status check_once(const std::uint8_t* from) const {
    for (const Item& item : program_.items)
      if (item.once) {
        if (get_number(item, from) != *registers_.of<std::uint32_t>(item.value)) return other(item);
        from += item_bytes(item, 0);
      }
    return {};
  }

  Status check_block(const std::uint8_t* block, std::size_t first, std::size_t len) {
    const std::uint8_t* from = block;
    for (const Item& item : program_.items) {
      if (item.once) continue;
      if (!item.array) {
        const std::uint32_t bits = get_number(item, from);
        if (item.is_float && !is_finite(std::bit_cast<float>(bits)))
          return corrupt(fmt::format("'{}' of block {} is not finite", item.name, number_of(first)));
        if (item.input == kNone && bits != *registers_.of<std::uint32_t>(item.value)) return other(item);
        if (item.bits % 8 != 0 && bits >> item.bits != 0)
          return corrupt(fmt::format("'{}' of block {} has more than its {} bits", item.name,
                                     number_of(first), item.bits));
      } else if (!ends_clean(from, len, item.bits)) {
        return corrupt(fmt::format("a bit past the last of '{}'", item.name));
      }
      from += item_bytes(item, len);
    }
    read_block(block, len, schedule_.check);
    TITHE_TRY(holds(Stage::kBlock, 1, Code::kCorrupt, first));
    if (!looks_at_values()) return {};
    Status broken;
    runs(first, len, [&](std::size_t at, std::size_t count) {
      if (!broken.ok()) return;
      read_run(block, len, at - first, count, schedule_.check);
      broken = holds(Stage::kValue, count, Code::kCorrupt, first);
    });
    return broken;
  }

  // out[i] gets the values of one payload's block.
  template <typename Add>
  void decode_block(const std::uint8_t* block, std::size_t first, std::size_t len, const Add& add) {
    read_block(block, len, schedule_.read);
    runs(first, len, [&](std::size_t at, std::size_t count) {
      read_run(block, len, at - first, count, schedule_.read);
      add(at, count, registers_.of<float>(program_.result));
    });
  }

  // ---- Pairs

  Encoded encode_pairs(const Carry& in, const sparse::Form& form, std::size_t most, std::size_t keep,
                       Bytes out) {
    given_.length = given_.n;
    for (const Pass& pass : schedule_.passes) {
      registers_.compute_once(pass.block, given_);
      std::vector<Reduction> reductions(pass.reduce.size());
      runs(0, in.n, [&](std::size_t at, std::size_t count) {
        take(in, at, count);
        registers_.compute_values(pass.value, given_, count);
        for (std::size_t r = 0; r < reductions.size(); ++r)
          if (registers_.node(pass.reduce[r]).op != Op::kThreshold)
            reductions[r].add(registers_, pass.reduce[r], count);
      });
      for (std::size_t r = 0; r < reductions.size(); ++r) {
        const int k = pass.reduce[r];
        if (registers_.node(k).op == Op::kThreshold)
          threshold(in, k);
        else
          reductions[r].finish(registers_, k);
        if (schedule_.filled[static_cast<std::size_t>(k)]) registers_.fill(k);
      }
    }
    registers_.compute_once(schedule_.send.block, given_);
    std::vector<std::uint32_t> picked;
    runs(0, in.n, [&](std::size_t at, std::size_t count) {
      take(in, at, count);
      registers_.compute_values(schedule_.send.value, given_, count);
      const std::uint32_t* goes = registers_.of<std::uint32_t>(program_.pairs.where);
      for (std::size_t i = 0; i < count; ++i)
        if (goes[i] != 0) picked.push_back(static_cast<std::uint32_t>(at + i));
    });
    const std::vector<float> values = select::taken(in);
    if (picked.size() > most) select::keep_largest(keep, values, picked);
    return select::send_ref(form, in, values, picked, out);
  }

 private:
  template <typename Of>
  void runs(std::size_t first, std::size_t len, const Of& of) {
    for (std::size_t at = first; at < first + len; at += kRun) {
      given_.first = at;
      of(at, std::min(kRun, first + len - at));
    }
  }

  void take(const Carry& in, std::size_t at, std::size_t count) {
    float* to = taken_.empty() ? own_ : registers_.of<float>(taken_[0]);
    for (std::size_t i = 0; i < count; ++i) to[i] = in.take(at + i);
    taken_now_ = to;
    for (std::size_t k = 1; k < taken_.size(); ++k) std::copy_n(to, count, registers_.of<float>(taken_[k]));
    for (const int k : grad_) std::copy_n(in.grad + at, count, registers_.of<float>(k));
  }

  // False: something that is not finite would be sent or left.
  bool leave(const Carry& in, std::size_t at, std::size_t count) {
    const float* sent = registers_.of<float>(program_.result);
    bool finite = all_finite(sent, count);
    if (in.residual_out == nullptr) return finite;
    float* left = in.residual_out + at;
    for (std::size_t i = 0; i < count; ++i) left[i] = taken_now_[i] - sent[i];
    return all_finite(left, count) && finite;
  }

  // A block that holds a value that is not finite: nothing of it is sent.
  Status nothing(const Carry& in, std::size_t first, std::size_t len, std::uint8_t* out, bool& finite) {
    finite = false;
    std::fill_n(out, block_bytes(program_, len), std::uint8_t{0});
    if (in.residual_out != nullptr)
      for (std::size_t i = first; i < first + len; ++i) in.leave(i, 0.0F);
    return {};
  }

  void receive(const Item& item, const std::uint32_t* values, std::size_t count) {
    if (item.input == kNone) return;
    std::copy_n(values, count, registers_.of<std::uint32_t>(item.input));
    if (!item.array && schedule_.filled[static_cast<std::size_t>(item.input)]) registers_.fill(item.input);
  }

  bool looks_at_values() const {
    return std::any_of(program_.items.begin(), program_.items.end(),
                       [&](const Item& item) {
                         return item.where != kNone && registers_.node(item.where).stage == Stage::kValue;
                       }) ||
           std::any_of(program_.items.begin(), program_.items.end(),
                       [](const Item& item) { return item.array && item.is_float; });
  }

  // What every `where` says: of a block's numbers and of what is known before them, or of this run's values.
  Status holds(Stage of, std::size_t count, Code code, std::size_t first) const {
    const bool values = of == Stage::kValue;
    for (const Item& item : program_.items) {
      if (values && item.array && item.is_float && item.input != kNone &&
          !all_finite(registers_.of<float>(item.input), count))
        return {code, fmt::format("{}: '{}' of block {} is not finite", name_, item.name, number_of(first))};
      if (item.where == kNone || (registers_.node(item.where).stage == Stage::kValue) != values) continue;
      const std::uint32_t* truth = registers_.of<std::uint32_t>(item.where);
      if (std::find(truth, truth + count, 0U) != truth + count)
        return {code, fmt::format("{}: '{}' of block {} is not what its 'where' says", name_, item.name,
                                  number_of(first))};
    }
    return {};
  }

  void threshold(const Carry& in, int k) const {
    const Node& node = registers_.node(k);
    const double ratio = *registers_.of<double>(node.in[0]), share = *registers_.of<double>(node.in[1]);
    const select::Sample sample = select::plan_sample(in.n, ratio, share);
    *registers_.of<std::uint32_t>(k) = select::threshold_ref(sample, given_.key, ratio, in);
  }

  std::size_t number_of(std::size_t first) const { return program_.block == 0 ? 0 : first / program_.block; }
  Status corrupt(const std::string& what) const {
    return {Code::kCorrupt, fmt::format("{}: {}", name_, what)};
  }
  Status other(const Item& item) const {
    return corrupt(fmt::format("'{}' has another value here", item.name));
  }

  const Checked& program_;
  const Schedule& schedule_;
  std::string_view name_;
  const Call& call_;
  Registers registers_;
  Given given_;
  std::vector<int> taken_, grad_;
  const float* taken_now_ = nullptr;
  float own_[kRun];  // where the program does not read what is taken
};

template <typename T>
T plan_number(const Checked& program, const Schedule& schedule, int node, const Settings& settings,
              std::size_t n) {
  const Memory memory = memory_of(schedule);
  const Registers registers(program, schedule, memory.get());
  registers.compute_once(schedule.plan, {.settings = &settings, .n = n}, false);
  return *registers.of<T>(node);
}

}  // namespace

double plan_value(const Checked& program, const Schedule& schedule, int node, const Settings& settings,
                  std::size_t n) {
  return plan_number<double>(program, schedule, node, settings, n);
}
float plan_float(const Checked& program, const Schedule& schedule, int node, const Settings& settings,
                 std::size_t n) {
  return plan_number<float>(program, schedule, node, settings, n);
}

PairsLimits limits_of(const Combination& of, const Settings& settings, std::size_t n) {
  const auto count = [&](int node, std::size_t otherwise) {
    if (node == kNone) return otherwise;
    const double v = plan_value(of.program, of.schedule, node, settings, n);
    return v > 0 ? static_cast<std::size_t>(std::min(v, static_cast<double>(otherwise))) : 0;
  };
  const std::size_t most = count(of.program.pairs.most, n);
  return {.most = most, .keep = count(of.program.pairs.keep, most)};
}

std::size_t bound(const Combination& of, const Settings& settings, std::size_t n) {
  if (!of.program.sends_pairs) return payload_bytes(of.program, n);
  return sparse::bound(sparse::form_of(settings, of.form), limits_of(of, settings, n).most, n);
}

Result<Encoded> encode(const Combination& of, std::string_view name, const Call& call, const Carry& in,
                       Bytes out) {
  if (of.program.sends_pairs) TITHE_TRY(sparse::check_values(name, in.n));
  const std::size_t bytes = bound(of, call.settings, in.n);
  TITHE_TRY(codec::check_room(name, out.size(), bytes));
  const Memory memory = memory_of(of.schedule);
  Machine machine(of, name, call, in.n, memory.get());
  if (of.program.sends_pairs) {
    const PairsLimits limits = limits_of(of, call.settings, in.n);
    return machine.encode_pairs(in, sparse::form_of(call.settings, of.form), limits.most, limits.keep, out);
  }
  bool finite = true;
  machine.put_once(out.data());
  TITHE_TRY(machine.blocks([&](std::size_t first, std::size_t len, std::size_t at) {
    return machine.encode_block(in, first, len, out.data() + at, finite);
  }));
  return Encoded{bytes, finite};
}

Status check(const Combination& of, std::string_view name, const Call& call, std::size_t n,
             ByteView payload) {
  if (of.program.sends_pairs) return sparse::check(name, n, limits_of(of, call.settings, n).most, payload);
  TITHE_TRY(codec::check_size(name, payload.size(), payload_bytes(of.program, n)));
  const Memory memory = memory_of(of.schedule);
  Machine machine(of, name, call, n, memory.get());
  TITHE_TRY(machine.check_once(payload.data()));
  return machine.blocks([&](std::size_t first, std::size_t len, std::size_t at) {
    return machine.check_block(payload.data() + at, first, len);
  });
}

Status decode(const Combination& of, std::string_view name, const Call& call,
              std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  for (const ByteView p : payloads) TITHE_TRY(check(of, name, call, out.size(), p));
  if (of.program.sends_pairs) {
    sparse::decode_ref(payloads, merge, out);
    return {};
  }
  const Memory memory = memory_of(of.schedule);
  Machine machine(of, name, call, out.size(), memory.get());
  if (payloads.empty())
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = merge.base ? merge.base[i] : 0.0F;
  TITHE_TRY(machine.blocks([&](std::size_t first, std::size_t len, std::size_t at) {
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const float* base = p == 0 ? merge.base : out.data();
      machine.decode_block(payloads[p].data() + at, first, len,
                           [&](std::size_t from, std::size_t count, const float* v) {
                             for (std::size_t i = 0; i < count; ++i)
                               out[from + i] = base ? base[from + i] + v[i] : v[i];
                           });
    }
    return Status{};
  }));
  if (merge.divide != 1.0F)
    for (float& v : out) v /= merge.divide;
  return {};
}

}  // namespace tithe::lang
