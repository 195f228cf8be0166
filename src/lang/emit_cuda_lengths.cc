// SPDX-License-Identifier: Apache-2.0
#include "lang/emit_cuda_lengths.h"

#include <algorithm>

#include "lang/emit_cuda_text.h"

namespace tithe::lang {

namespace {

class LengthsText : CudaText {
 public:
  using CudaText::CudaText;

  std::string run() {
    types();
    shared();
    places();
    numbers_of_all();
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) find(p);
    send();
    offsets();
    write();
    read();
    receive();
    kernels();
    host();
    return std::move(out_);
  }

 private:
  template <typename Of>
  void arrays(const Of& of) const {
    each([&](std::size_t k, const Item& item) {
      if (item.array) of(k, item);
    });
  }
  bool looks() const { return !schedule_.looked.reduce.empty(); }
  // What the bytes of some blocks are told in; nullptr: nothing.
  const Item* table() const {
    const auto found = std::find_if(program_.items.begin(), program_.items.end(),
                                    [](const Item& item) { return item.coding == Coding::kBytes; });
    return found == program_.items.end() ? nullptr : &*found;
  }
  std::size_t table_at() const {
    const Item* const t = table();
    return t == nullptr ? 0 : static_cast<std::size_t>(t - program_.items.data());
  }

  void shared() {
    line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
    open("struct Shared");
    line("Found found;");
    line("Lanes lanes;");
    line("U size;");  // bytes of the block
    each([&](std::size_t k, const Item& item) {
      if (item.in_block()) line("U o{};", k);  // bytes before the item
      if (item.in_block() && !item.array) line("U v{};", k);
      if (!item.array) return;
      line("uint{}_t c{}[{}];", 8 * code_bytes(item), k, program_.block);
      if (item.coding == Coding::kWidths) line("uint8_t w{}[{}];", k, program_.block);
      line("U own{}[kThreads], all{};", k, k);  // bits, or places, of each thread's values; of all
    });
    line("U words[{}];", (block_bytes(program_, program_.block) + 3) / 4 + 2);
    close("};");
    line("static_assert(sizeof(Shared) <= 48 * 1024, \"more than a block of threads can share\");");
    line("// The values of thread t: from own_from(t) to own_from(t + 1).");
    line("DEV size_t own_from(size_t len, U thread) {{ return len * thread / kThreads; }}");
  }

  // Where tables begin, and the blocks behind them.
  void places() {
    std::string from = fmt::format("{}", once_bytes(program_));
    for (std::size_t k = 0; k < program_.items.size(); ++k) {
      const Item& item = program_.items[k];
      if (!item.table) continue;
      line("DEV uint64_t table_{}(uint64_t n) {{ static_cast<void>(n); return {}; }}", k, from);
      const std::size_t per = item.per != 0 ? item.per : program_.block;
      from = fmt::format("table_{}(n) + (n + {}) / {} * {}", k, per - 1, per, item_bytes(item, 1));
    }
    line("DEV uint64_t head_of(uint64_t n) {{ static_cast<void>(n); return {}; }}", from);
    const std::size_t per = table() != nullptr ? table()->per / program_.block : 0;
    line("// Blocks that a reader walks one after the other, and how many such groups there are.");
    line("DEV uint64_t group_of(uint64_t n) {{ return {}; }}",
         per != 0 ? fmt::format("n * 0 + {}", per) : "blocks_of(n)");
    line("DEV uint64_t groups_of(uint64_t n) {{ return parts_in(blocks_of(n), group_of(n)); }}");
  }

  // ---- What is found of all blocks

  // Each has room of eight bytes.
  unsigned numbers_in_8(int k) const {
    return node(k).type == Type::kF64 ? 1 : node(k).type == Type::kBool ? 8 : 2;
  }
  void numbers_of_all() {
    open("struct All");
    line("U none;");
    for (const int k : schedule_.looked.reduce) line("{} b{};", text_.number_type(k), k);
    close("};");
    if (!looks()) return;
    passes_ = &schedule_.look;
    prefix_ = "first_";
    for (std::size_t p = 0; p < schedule_.look.size(); ++p) find(p);
    std::vector<std::string> phases = std::move(finding_);
    finding_.clear();
    open_phase("number", Unit::kBlocks, schedule_.look.size());
    line("if (thread != 0 || first >= n) return;");
    define_all(schedule_.looked.block);
    std::size_t r = 0;
    for (const int k : schedule_.looked.reduce) {
      const int in = node(k).in[0];
      line("static_cast<{}*>(call->parts)[{} * blocks_of(n) * {} + b] = {};", text_.number_type(in), r++,
           numbers_in_8(in), text_.number(in));
    }
    close();
    phases.emplace_back("number");
    kernel("tithe_number", "Shared", phases);
    passes_ = &schedule_.passes;
    prefix_.clear();
    gather_numbers();
  }

  // One block of threads: sixteen of them go through the numbers of all blocks, piece by piece.
  void gather_numbers() {
    open("struct Gather");
    for (const int k : schedule_.looked.reduce) {
      const std::string type = text_.number_type(node(k).in[0]);
      if (is_sum(k)) line("{} s{}[kLanes], piece{}[kLanes];", type, k, k);
      if (is_end(k)) line("{} s{}[kLanes]; U p{}[kLanes];", type, k, k);
      if (counts(k)) line("U n{}[kLanes];", k);
    }
    line("U none;");
    close("};");
    open("DEV void no_numbers(const Call*, Gather& s, uint64_t, U thread)");
    line("if (thread >= kLanes) return;");
    line("s.none = 0;");
    for (const int k : schedule_.looked.reduce) {
      if (is_sum(k)) line("s.piece{}[thread] = 0;", k);
      if (is_end(k)) line("s.s{}[thread] = 0, s.p{}[thread] = kNowhere;", k, k);
      if (counts(k)) line("s.n{}[thread] = 0;", k);
    }
    close();
    const auto number = [&](std::size_t r, int k) {
      line("const {} v{} = static_cast<const {}*>(call->parts)[{} * blocks * {} + j];",
           text_.number_type(node(k).in[0]), k, text_.number_type(node(k).in[0]), r, numbers_in_8(node(k).in[0]));
    };
    open("DEV void add_numbers(const Call* call, Gather& s, uint64_t at, U thread)");
    line("if (thread >= kLanes) return;");
    line("const uint64_t blocks = call->n == 0 ? 0 : blocks_of(call->n);");
    line("const uint64_t end = blocks < (at + 1) * {0} ? blocks : (at + 1) * {0};", kPiece);
    for (const int k : schedule_.looked.reduce)
      if (is_sum(k)) line("s.s{}[thread] = 0;", k);
    open(fmt::format("for (uint64_t j = at * {} + thread; j < end; j += kLanes)", kPiece));
    std::size_t r = 0;
    for (const int k : schedule_.looked.reduce) {
      number(r++, k);
      if (is_sum(k)) line("s.s{0}[thread] = add(s.s{0}[thread], v{0});", k);
      if (is_end(k))
        line("look_at<{0}>(v{1}, U(j), s.s{1}[thread], s.p{1}[thread]);", node(k).op == Op::kLargest, k);
      if (counts(k)) line("s.n{0}[thread] += {1};", k, node(k).op == Op::kAll ? fmt::format("!v{}", k) : fmt::format("as_u(v{})", k));
    }
    close();
    close();
    open("DEV void end_piece(const Call*, Gather& s, uint64_t at, U thread)");
    line("if (thread != 0) return;");
    line("s.none = U(at);");
    for (const int k : schedule_.looked.reduce)
      if (is_sum(k)) line("s.piece{0}[at % kLanes] = add(s.piece{0}[at % kLanes], total_of(s.s{0}));", k);
    close();
    open("DEV void end_numbers(const Call* call, Gather& s, uint64_t, U thread)");
    line("if (thread != 0) return;");
    line("const uint64_t len = call->n == 0 ? 0 : blocks_of(call->n);");
    line("static_cast<void>(len), static_cast<void>(s);");
    line("All& found = *static_cast<All*>(call->found);");
    line("found.none = 0;");
    for (const int k : schedule_.looked.reduce) {
      const Node& n = node(k);
      const std::string type = text_.number_type(k);
      if (is_sum(k)) {
        line("const {0} t{1} = within(total_of(s.piece{1}), {0}({2}));", type, k,
             n.type == Type::kF64 ? "0x1.fffffffffffffp1023" : "0x1.fffffep127f");
        if (n.op == Op::kSum) line("found.b{0} = t{0};", k);
        if (n.op == Op::kMean) line("found.b{0} = len == 0 ? {1}(0) : div_(t{0}, {1}(len));", k, type);
      } else if (is_end(k)) {
        line("U where{};", k);
        line("end_of<{0}>(s.s{1}, s.p{1}, kLanes, found.b{1}, where{1});", n.op == Op::kLargest, k);
      } else {
        line("found.b{0} = sum_of(s.n{0}, kLanes){1};", k, n.op == Op::kCount ? "" : n.op == Op::kAny ? " != 0" : " == 0");
      }
    }
    close();
    line("KERNEL(tithe_all, Gather, PHASE(no_numbers)");
    line("  for (uint64_t piece = 0; piece < parts_in(blocks_of(call->n), {}); ++piece) {{", kPiece);
    line("    const uint64_t at = piece;");
    line("    PHASE(add_numbers) PHASE(end_piece)");
    line("  }} PHASE(end_numbers))");
  }

  // ---- Encode

  void open_sending(const std::string& name, const char* also) {
    open_phase(name, Unit::kBlocks, schedule_.passes.size(), also);
    if (!looks()) return;
    line("const All& all = *static_cast<const All*>(call->found);");
    for (const int k : schedule_.looked.reduce) {
      line("const {0} b{1} = all.b{1};", text_.number_type(k), k);
      known(k);
    }
    define_all(schedule_.all);
  }

  // The codes of a block's values, and how many bits each takes. The last time, what is left as well.
  void send() {
    open_sending("send_as", "bool last");
    define_all(schedule_.send.block);
    line("const bool writes = last && thread == 0 && first < n;");
    std::size_t at = 0;
    for (const Item& item : program_.items) {
      if (!item.once) continue;
      const std::string value = text_.number(item.value);
      line("if (last && thread == 0 && at == 0) put(call->payload + {}, raw({}), {});", at, value,
           item_bytes(item, 1));
      if (item.is_float) line("if (!is_finite({})) call->answer[0] = 1;", value);
      at += item_bytes(item, 1);
      receive_as(item, fmt::format("raw({})", value), 'b');
    }
    define_all(schedule_.all_read);
    each([&](std::size_t k, const Item& item) {
      if (item.array || item.coding == Coding::kBytes) return;
      const std::string value = text_.number(item.value);
      if (item.table)
        line("if (writes) put(call->payload + table_{}(n) + b * {}, raw({}), {});", k, item_bytes(item, 1), value,
             item_bytes(item, 1));
      else
        line("if (thread == 0) s.v{} = raw({});", k, value);
      if (item.is_float) line("if (first < n && !is_finite({})) call->answer[0] = 1;", value);
      receive_as(item, fmt::format("raw({})", value), 'b');
    });
    define_all(schedule_.read.block);
    for (const Pass& pass : schedule_.widths) define_all(pass.block);
    hold(false);
    before_loop(schedule_.send.value);
    before_loop(schedule_.read.value);
    outer_ = defined_;
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    take();
    define_all(schedule_.send.value);
    arrays([&](std::size_t k, const Item& item) {
      line("U code{} = raw({});", k, text_.values(item.value));
      if (item.coding == Coding::kWidths) {
        define_all(schedule_.widths[k].value);
        line("s.w{}[i] = uint8_t({});", k, text_.values(item.width));
        line("code{0} &= U((uint64_t(1) << s.w{0}[i]) - 1);", k);
      }
      line("s.c{0}[i] = uint{1}_t(code{0});", k, 8 * code_bytes(item));
      if (item.is_float) line("if (!is_finite({})) call->answer[0] = 1;", text_.values(item.value));
      receive_as(item, fmt::format("code{}", k), 'v');
    });
    define_all(schedule_.read.value);
    hold(true);
    line("const F sent = {}, rest = sub(x, sent);", text_.values(program_.result));
    line("if (!is_finite(sent) || (call->left != nullptr && !is_finite(rest))) call->answer[0] = 1;");
    line("if (last && call->left != nullptr) call->left[first + i] = rest;");
    close();
    defined_ = outer_;
    close();
    line("DEV void measure(const Call* call, Shared& s, uint64_t at, U thread) {{ send_as(call, s, at, thread, false); }}");
    line("DEV void send(const Call* call, Shared& s, uint64_t at, U thread) {{ send_as(call, s, at, thread, true); }}");
  }

  // What each thread's values of an array take.
  void own_bits(std::size_t k, const Item& item) {
    open_phase(fmt::format("own_{}", k), Unit::kBlocks, 0);
    line("U own = 0;");
    line("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i) own += {};",
         item.coding == Coding::kWidths   ? fmt::format("s.w{}[i]", k)
         : item.coding == Coding::kPlaces ? fmt::format("s.c{}[i]", k)
                                          : fmt::format("{}", item.bits));
    line("s.own{}[thread] = own;", k);
    close();
  }
  // One thread: what stands before each thread's values, and the bytes of all.
  void scan_own(std::size_t k, const Item& item) {
    line("U all{} = 0;", k);
    open("for (U t = 0; t < kThreads; ++t)");
    line("const U own = s.own{}[t];", k);
    line("s.own{0}[t] = all{0};", k);
    line("all{} += own;", k);
    close();
    line("s.all{0} = all{0};", k);
    line("s.o{} = at_byte;", k);
    line("at_byte += {};",
         item.coding == Coding::kPlaces
             ? fmt::format("{} + (all{} * {} + 7) / 8", count_bytes(item.full), k, place_bits(item.full))
         : item.coding == Coding::kWidths ? fmt::format("(all{} + 7) / 8", k)
                                          : fmt::format("U({})", array_bytes(item)));
  }
  void offsets() {
    arrays([&](std::size_t k, const Item& item) { own_bits(k, item); });
    open_phase("offsets", Unit::kBlocks, 0);
    line("if (thread != 0) return;");
    line("U at_byte = 0;");
    each([&](std::size_t k, const Item& item) {
      if (!item.in_block()) return;
      if (item.array) return scan_own(k, item);
      line("s.o{} = at_byte;", k);
      line("at_byte += {};", item_bytes(item, 1));
    });
    line("s.size = first < n ? at_byte : 0;");
    close();
    open("DEV void tell_size(const Call* call, Shared& s, uint64_t at, U thread)");
    line("if (thread == 0) call->keys[at] = s.size;");
    close();
  }

  // The block's bytes are put together where threads share them.
  void write() {
    open("DEV void no_words(const Call*, Shared& s, uint64_t, U thread)");
    line("for (U j = thread; j < sizeof s.words / 4; j += kThreads) s.words[j] = 0;");
    close();
    open_phase("words", Unit::kBlocks, 0);
    each([&](std::size_t k, const Item& item) {
      if (!item.in_block()) return;
      if (!item.array)
        return line("if (thread == 0) or_bits(s.words, 8 * s.o{0}, s.v{0}, {1});", k, 8 * item_bytes(item, 1));
      open("");
      if (item.coding == Coding::kPlaces) {
        line("if (thread == 0) or_bits(s.words, 8 * s.o{0}, s.all{0}, {1});", k, 8 * count_bytes(item.full));
        line("U bit = 8 * s.o{0} + {1} + {2} * s.own{0}[thread];", k, 8 * count_bytes(item.full),
             place_bits(item.full));
      } else {
        line("U bit = 8 * s.o{0} + s.own{0}[thread];", k);
      }
      open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
      if (item.coding == Coding::kPlaces) {
        line("if (s.c{}[i] == 0) continue;", k);
        line("or_bits(s.words, bit, U(i), {});", place_bits(item.full));
        line("bit += {};", place_bits(item.full));
      } else {
        const std::string bits = item.coding == Coding::kWidths ? fmt::format("s.w{}[i]", k) : fmt::format("{}", item.bits);
        line("or_bits(s.words, bit, s.c{}[i], {});", k, bits);
        line("bit += {};", bits);
      }
      close();
      close();
    });
    close();
    open("DEV void copy_words(const Call* call, Shared& s, uint64_t at, U thread)");
    line("uint8_t* const to = call->payload + head_of(call->n) + call->places[at];");
    line("for (U j = thread; j < s.size; j += kThreads) to[j] = uint8_t(s.words[j / 4] >> (8 * (j % 4)));");
    close();
    if (table() == nullptr) return;
    open("DEV void sum_group(const Call* call, Shared&, uint64_t at, U thread)");
    line("if (thread != 0 || call->n == 0) return;");
    line("const uint64_t from = at * group_of(call->n), blocks = blocks_of(call->n);");
    line("U sum = 0;");
    line("for (uint64_t b = from; b < from + group_of(call->n) && b < blocks; ++b) sum += call->keys[b];");
    line("put(call->payload + table_{0}(call->n) + at * {1}, sum, {1});", table_at(), item_bytes(*table(), 1));
    close();
    kernel("tithe_group", "Shared", {"sum_group"});
  }

  // ---- Decode

  std::string read_from() const { return "call->payload + head_of(n) + call->places[b]"; }

  // The codes of one item after the other, as the places of each follow from those above.
  void read() {
    open_phase("start", Unit::kBlocks, 0);
    line("if (thread == 0) s.size = 0;");
    close();
    reading_.emplace_back("start");
    each([&](std::size_t k, const Item& item) {
      if (!item.in_block()) return;
      if (!item.array) {
        open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
        line("if (thread != 0) return;");
        line("s.o{} = s.size;", k);
        line("s.v{0} = get({1} + s.o{0}, {2});", k, read_from(), item_bytes(item, 1));
        line("s.size += {};", item_bytes(item, 1));
        close();
        reading_.push_back(fmt::format("read_{}", k));
        return;
      }
      if (item.coding == Coding::kPlaces) return read_places(k, item);
      if (item.coding == Coding::kWidths) find_widths(k, item);
      read_codes(k, item);
    });
  }

  void read_places(std::size_t k, const Item& item) {
    const std::size_t head = count_bytes(item.full);
    const unsigned bits = place_bits(item.full);
    open_phase(fmt::format("clear_{}", k), Unit::kBlocks, 0);
    line("for (size_t i = thread; i < len; i += kThreads) s.c{}[i] = 0;", k);
    line("if (thread != 0) return;");
    line("s.o{} = s.size;", k);
    line("s.all{0} = get({1} + s.o{0}, {2});", k, read_from(), head);
    line("s.size += {} + (s.all{} * {} + 7) / 8;", head, k, bits);
    close();
    open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
    line("const uint8_t* const from = {} + s.o{} + {};", read_from(), k, head);
    line("for (U j = thread; j < s.all{0}; j += kThreads) s.c{0}[code_at<{1}>(from, j)] = 1;", k, bits);
    close();
    reading_.push_back(fmt::format("clear_{}", k));
    reading_.push_back(fmt::format("read_{}", k));
  }

  // What is known of a block's numbers where `below` is the first item that is not.
  void receive_numbers(std::size_t below) {
    std::size_t at = 0;
    for (std::size_t k = 0; k < program_.items.size(); ++k) {
      const Item& item = program_.items[k];
      if (item.once) {
        receive_as(item, fmt::format("get(call->payload + {}, {})", at, item_bytes(item, 1)), 'b');
        at += item_bytes(item, 1);
      }
    }
    define_all(schedule_.all_read);
    each([&](std::size_t k, const Item& item) {
      if (item.array || item.coding == Coding::kBytes || (item.in_block() && k >= below)) return;
      receive_as(item,
                 item.table ? fmt::format("get(call->payload + table_{}(n) + b * {}, {})", k, item_bytes(item, 1),
                                          item_bytes(item, 1))
                            : fmt::format("s.v{}", k),
                 'b');
    });
  }
  void receive_codes(std::size_t below) {
    arrays([&](std::size_t k, const Item& item) {
      if (k < below) receive_as(item, fmt::format("U(s.c{}[i])", k), 'v');
    });
  }

  void find_widths(std::size_t k, const Item& item) {
    const Pass& pass = schedule_.widths[k];
    open_phase(fmt::format("widths_{}", k), Unit::kBlocks, 0);
    receive_numbers(k);
    define_all(pass.block);
    line("U own = 0;");
    outer_ = defined_;
    open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
    receive_codes(k);
    define_all(pass.value);
    line("s.w{}[i] = uint8_t({});", k, text_.values(item.width));
    line("own += s.w{}[i];", k);
    close();
    defined_ = outer_;
    line("s.own{}[thread] = own;", k);
    close();
    reading_.push_back(fmt::format("widths_{}", k));
  }
  void read_codes(std::size_t k, const Item& item) {
    if (item.coding != Coding::kWidths) reading_.push_back(fmt::format("own_{}", k));
    open_phase(fmt::format("scan_{}", k), Unit::kBlocks, 0);
    line("if (thread != 0) return;");
    line("U at_byte = s.size;");
    scan_own(k, item);
    line("s.size = at_byte;");
    close();
    open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
    line("const uint8_t* const from = {} + s.o{};", read_from(), k);
    line("U bit = s.own{}[thread];", k);
    open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
    const std::string bits = item.coding == Coding::kWidths ? fmt::format("s.w{}[i]", k) : fmt::format("{}", item.bits);
    line("s.c{}[i] = uint{}_t(bits_at(from, bit, {}));", k, 8 * code_bytes(item), bits);
    line("bit += {};", bits);
    close();
    close();
    reading_.push_back(fmt::format("scan_{}", k));
    reading_.push_back(fmt::format("read_{}", k));
  }

  void receive() {
    open_phase("receive", Unit::kBlocks, 0);
    receive_numbers(program_.items.size());
    define_all(schedule_.read.block);
    before_loop(schedule_.read.value);
    outer_ = defined_;
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    receive_codes(program_.items.size());
    define_all(schedule_.read.value);
    line("const F v = {};", text_.values(program_.result));
    line("call->out[first + i] = call->base == nullptr ? v : add(call->base[first + i], v);");
    close();
    defined_ = outer_;
    close();
  }

  // ---- Kernels

  void kernels() {
    std::vector<std::string> own;
    arrays([&](std::size_t k, const Item&) { own.push_back(fmt::format("own_{}", k)); });
    std::vector<std::string> phases = finding_;
    phases.emplace_back("measure");
    phases.insert(phases.end(), own.begin(), own.end());
    for (const char* last : {"offsets", "tell_size"}) phases.emplace_back(last);
    kernel("tithe_measure", "Shared", phases);
    phases = finding_;
    phases.emplace_back("send");
    phases.insert(phases.end(), own.begin(), own.end());
    for (const char* last : {"offsets", "no_words", "words", "copy_words"}) phases.emplace_back(last);
    kernel("tithe_send", "Shared", phases);
    // Of a group: where each block begins.
    open("DEV void begin_group(const Call* call, Shared&, uint64_t at, U thread)");
    line("const uint64_t b = at * group_of(call->n);");
    line("if (thread == 0) call->places[b] = call->groups[at];");
    close();
    open("DEV void next_block(const Call* call, Shared& s, uint64_t at, U thread)");
    line("if (thread == 0 && (at + 1) % group_of(call->n) != 0 && at + 1 < blocks_of(call->n))");
    line("  call->places[at + 1] = call->places[at] + s.size;");
    close();
    std::string all;
    for (const std::string& phase : reading_) all += fmt::format(" PHASE({})", phase);
    line("KERNEL(tithe_walk, Shared, const uint64_t group = at; PHASE(begin_group)");
    line("  for (uint64_t b = group * group_of(call->n); b < (group + 1) * group_of(call->n) && b < blocks_of(call->n); ++b) {{");
    line("    const uint64_t at = b;");
    line("   {} PHASE(next_block)", all);
    line("  }})");
    std::vector<std::string> reads = reading_;
    reads.emplace_back("receive");
    kernel("tithe_receive", "Shared", reads);
    // Where groups begin: one block of threads.
    if (table() != nullptr) {
      open("DEV void group_bytes(const Call* call, Scan&, uint64_t, U thread)");
      line("for (uint64_t k = thread; k < groups_of(call->n); k += kThreads)");
      line("  call->keys[k] = get(call->payload + table_{0}(call->n) + k * {1}, {1});", table_at(),
           item_bytes(*table(), 1));
      close();
    }
    line("DEV uint64_t scanned(const Call* call, bool decode) {{ return decode ? groups_of(call->n) : blocks_of(call->n); }}");
    for (const bool decode : {false, true}) {
      const char* const name = decode ? "groups" : "blocks";
      open(fmt::format("DEV void scan_own_{}(const Call* call, Scan& s, uint64_t, U thread)", name));
      line("scan_slice(call->keys, scanned(call, {}), s, thread);", decode);
      close();
      open(fmt::format("DEV void scan_rest_{}(const Call* call, Scan& s, uint64_t, U thread)", name));
      line("const uint64_t end = scan_places(call->keys, call->{}, scanned(call, {}), s, thread);",
           decode ? "groups" : "places", decode);
      if (decode)
        line("static_cast<void>(end);");
      else
        line("if (thread == kThreads - 1) *call->bytes = head_of(call->n) + end;");
      close();
    }
    kernel("tithe_places", "Scan", {"scan_own_blocks", "scan_before", "scan_rest_blocks"});
    if (table() != nullptr)
      kernel("tithe_groups", "Scan", {"group_bytes", "scan_own_groups", "scan_before", "scan_rest_groups"});
    else
      line("DEV void one_group(const Call* call, Scan&, uint64_t, U thread) {{ if (thread == 0) call->groups[0] = 0; }}\n"
           "KERNEL(tithe_groups, Scan, PHASE(one_group))");
  }

  void host() {
    open("static uint64_t place_all(Call& of)");
    line("const uint64_t blocks = blocks_of(of.n);");
    line("uint8_t* to = of.scratch;");
    line("of.found = to;");
    line("of.parts = to += up8(sizeof(All));");
    line("of.places = reinterpret_cast<uint64_t*>(to += 8 * blocks * {});", schedule_.looked.reduce.size());
    line("of.groups = reinterpret_cast<uint64_t*>(to += 8 * blocks);");
    line("of.keys = reinterpret_cast<U*>(to += 8 * groups_of(of.n));");
    line("return uint64_t(to - of.scratch) + up8(4 * blocks);");
    close();
    open("API uint64_t tithe_scratch(const Call* asked)");
    line("Call of = *asked;");
    line("of.scratch = nullptr;");
    line("return place_all(of);");
    close();
    const auto begin = [&] {
      line("Call of = *asked;");
      line("const Call* const call = &of;");
      line("place_all(of);");
    };
    open("API void tithe_encode(const Call* asked, Stream stream)");
    begin();
    if (looks()) {
      line("LAUNCH(tithe_number, blocks_of(of.n));");
      line("LAUNCH(tithe_all, 1);");
    }
    line("LAUNCH(tithe_measure, blocks_of(of.n));");
    if (table() != nullptr) line("LAUNCH(tithe_group, groups_of(of.n));");
    line("LAUNCH(tithe_places, 1);");
    line("LAUNCH(tithe_send, blocks_of(of.n));");
    close();
    open("API void tithe_decode(const Call* asked, Stream stream)");
    begin();
    line("if (of.n == 0) return;");
    line("LAUNCH(tithe_groups, 1);");
    line("LAUNCH(tithe_walk, groups_of(of.n));");
    line("LAUNCH(tithe_receive, blocks_of(of.n));");
    close();
  }

  std::vector<std::string> reading_;
};

}  // namespace

std::string lengths_text(const Checked& program, const Schedule& schedule) {
  return LengthsText(program, schedule).run();
}

}  // namespace tithe::lang
