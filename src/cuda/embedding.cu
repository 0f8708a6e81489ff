#include <algorithm>
#include <bit>

#include "cuda/embedding.h"
#include "cuda/rows.h"

namespace metaformer::cuda {

namespace {

// Tokens are sorted by id with a radix sort that keeps the order of equal ids: for each digit of the ids, the lowest
// first, one kernel counts the digits of every chunk of tokens, and one moves the tokens to their places.
constexpr int digit_bits = 8, digits = 1 << digit_bits, sort_threads = digits;
constexpr std::int64_t most_chunks = 128;  // a block adds the counts of all chunks

// A pass over one digit. `ids`: in the first pass, in which the tokens are in order.
struct SortPass {
  const std::int64_t* ids = nullptr;
  const std::uint32_t *keys = nullptr, *tokens = nullptr;
  std::uint32_t *sorted_keys = nullptr, *sorted_tokens = nullptr;
  std::uint32_t* counts = nullptr;  // [chunks, digits]
  std::int64_t count = 0;
  std::int64_t chunks = 0, rounds = 0;  // a chunk has `rounds` times as many tokens as a block has threads
  int shift = 0;

  GPU_DEVICE std::uint32_t key(std::int64_t i) const {
    return ids != nullptr ? static_cast<std::uint32_t>(ids[i]) : keys[i];
  }
  GPU_DEVICE std::uint32_t token(std::int64_t i) const {
    return ids != nullptr ? static_cast<std::uint32_t>(i) : tokens[i];
  }
  GPU_DEVICE std::uint32_t digit(std::uint32_t key) const { return key >> shift & (digits - 1); }
  GPU_DEVICE std::int64_t first(std::int64_t round) const {
    return (gpu::block_index() * rounds + round) * sort_threads;
  }
};

struct DigitRank {
  std::uint32_t earlier = 0;  // threads before this one with its digit
  std::uint32_t count = 0;    // threads whose digit is the number of this one
};

// `all`: the digits of the block's threads, in shared memory.
GPU_DEVICE DigitRank rank_of(const std::uint32_t* all) {
  const auto thread = static_cast<std::uint32_t>(gpu::thread_index()), own = all[thread];
  DigitRank rank;
  GPU_UNROLL_BY(8)
  for (std::uint32_t other = 0; other < sort_threads; ++other) {
    const auto digit = all[other];
    rank.earlier += digit == own && other < thread ? 1 : 0;
    rank.count += digit == thread ? 1 : 0;
  }
  return rank;
}

GPU_KERNEL(sort_threads)
embedding_count_kernel(const SortPass pass) {
  GPU_SHARED_MEMORY(memory);
  auto* all = reinterpret_cast<std::uint32_t*>(memory);
  const int thread = gpu::thread_index();
  std::uint32_t total = 0;
  for (std::int64_t round = 0; round < pass.rounds; ++round) {
    const auto i = pass.first(round) + thread;
    all[thread] = gpu::within(i < pass.count) ? pass.digit(pass.key(i)) : digits;
    gpu::sync_threads();
    total += rank_of(all).count;
    gpu::sync_threads();
  }
  pass.counts[gpu::block_index() * digits + thread] = total;
}

// The place of the first token of the block's chunk whose digit is the number of the thread. `all`: a number for each
// thread, in shared memory.
GPU_DEVICE std::uint32_t first_place(const SortPass& pass, std::uint32_t* all) {
  const int thread = gpu::thread_index();
  std::uint32_t total = 0, place = 0;
  GPU_UNROLL_BY(8)
  for (std::int64_t chunk = 0; chunk < pass.chunks; ++chunk) {
    const auto count = pass.counts[chunk * digits + thread];
    total += count;
    place += chunk < gpu::block_index() ? count : 0;
  }
  all[thread] = total;
  gpu::sync_threads();
  GPU_UNROLL_BY(8)
  for (int digit = 0; digit < digits; ++digit) place += digit < thread ? all[digit] : 0;
  return place;
}

GPU_KERNEL(sort_threads)
embedding_sort_kernel(const SortPass pass) {
  GPU_SHARED_MEMORY(memory);
  auto* all = reinterpret_cast<std::uint32_t*>(memory);
  auto* places = all + sort_threads;  // of the next token with each digit
  const int thread = gpu::thread_index();
  places[thread] = first_place(pass, all);
  for (std::int64_t round = 0; round < pass.rounds; ++round) {
    gpu::sync_threads();
    const auto i = pass.first(round) + thread;
    const bool exists = gpu::within(i < pass.count);
    const auto key = exists ? pass.key(i) : 0, digit = exists ? pass.digit(key) : digits;
    all[thread] = digit;
    gpu::sync_threads();
    const auto rank = rank_of(all);
    if (exists) {
      const auto place = places[digit] + rank.earlier;
      pass.sorted_keys[place] = key;
      pass.sorted_tokens[place] = pass.token(i);
    }
    gpu::sync_threads();
    places[thread] += rank.count;
  }
}

// Sums over windows of the sorted tokens. A warp has four columns for each lane, and window_warps warps are a block.
constexpr int window = 32, window_warps = 4, window_threads = window_warps * gpu::warp_size;
constexpr int at_once = 8;  // rows that a warp loads before it adds them
constexpr int tile_columns = gpu::warp_size * columns_of_lane;

struct SumRule {
  EmbeddingGradient in;
  const std::uint32_t *keys = nullptr, *tokens = nullptr;  // sorted
  std::int64_t windows = 0, tiles = 0;                     // tiles of columns
  bool aligned = false;                                    // all arrays, to four entries
};

class WindowColumns {
 public:
  GPU_DEVICE explicit WindowColumns(const SumRule& rule) : rule_(rule), in_(rule.in) {
    const auto item = gpu::block_index() * window_warps + warp_index();
    window_ = item / rule.tiles;
    column_ = static_cast<int>(item - window_ * rule.tiles) * tile_columns + lane_index() * columns_of_lane;
    first_ = window_ * window;
    end_ = first_ + window < in_.tokens ? first_ + window : in_.tokens;
  }

  GPU_DEVICE bool exists() const { return window_ < rule_.windows; }

  // Adds the rows of every id in the window. If earlier windows have tokens of the id, the sum becomes the first
  // partial sum of this window. Otherwise it becomes the second one if later windows have tokens of the id, and a row
  // of the table if they have none.
  GPU_DEVICE void add_window() const {
    float sum[4] = {0, 0, 0, 0};
    bool began_before = continues_at(first_);
    GPU_DO_NOT_UNROLL
    for (auto from = first_; from < end_; from += at_once) {
      unsigned rows[at_once][4];
      load_rows(
          rows, in_.dy, [&](int i) { return rule_.tokens[from + i]; }, end_ - from);
      GPU_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const auto at = from + i;
        if (at >= end_) break;
        add_row(sum, rows[i]);
        const bool goes_on = continues_at(at + 1);
        if (goes_on && at + 1 < end_) continue;
        store(began_before ? partial(0) : goes_on ? partial(1) : table_row(rule_.keys[at]), sum);
        began_before = false;
        sum[0] = sum[1] = sum[2] = sum[3] = 0;
      }
    }
  }

  // Adds the partial sums of the id whose tokens begin in this window and continue in the next ones.
  GPU_DEVICE void add_windows() const {
    const auto key = rule_.keys[end_ - 1];
    const bool begins_here = !(rule_.keys[first_] == key && continues_at(first_));
    if (!begins_here || !continues_at(end_)) return;
    float sum[4] = {0, 0, 0, 0};
    unsigned rows[at_once][4];
    load_rows(
        rows, in_.sums, [&](int) { return 2 * window_ + 1; }, 1);
    add_row(sum, rows[0]);
    const auto last = last_window_of(key);
    GPU_DO_NOT_UNROLL
    for (auto from = window_ + 1; from <= last; from += at_once) {
      load_rows(
          rows, in_.sums, [&](int i) { return 2 * (from + i); }, last + 1 - from);
      GPU_UNROLL
      for (int i = 0; i < at_once; ++i) add_row(sum, rows[i]);
    }
    store(table_row(key), sum);
  }

 private:
  // Whether the sorted token `at` exists and has the id of the one before it.
  GPU_DEVICE bool continues_at(std::int64_t at) const {
    return at > 0 && gpu::within(at < in_.tokens) && rule_.keys[at] == rule_.keys[at - 1];
  }

  // The last window that begins with the key: a binary search, because a loop would wait for every window.
  GPU_DEVICE std::int64_t last_window_of(std::uint32_t key) const {
    auto low = window_ + 1, above = rule_.windows;
    while (above - low > 1) {
      const auto middle = (low + above) / 2;
      (rule_.keys[middle * window] == key ? low : above) = middle;
    }
    return low;
  }

  // The columns of the rows whose numbers are row_of(0), row_of(1) and so on; of those from `count` on zeros.
  template <class RowOf>
  GPU_DEVICE void load_rows(unsigned (&rows)[at_once][4], const float* from, RowOf row_of, std::int64_t count) const {
    GPU_UNROLL
    for (int i = 0; i < at_once; ++i) {
      const bool is_row = gpu::within(i < count);
      const auto row = is_row ? static_cast<std::int64_t>(row_of(i)) : 0;
      load_some<Fp32>(rows[i], from + row * in_.width + column_, is_row ? in_.width - column_ : 0, rule_.aligned);
    }
  }
  GPU_DEVICE static void add_row(float (&sum)[4], const unsigned (&row)[4]) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) sum[i] += gpu::float_of(row[i]);
  }

  GPU_DEVICE float* partial(int which) const { return in_.sums + (2 * window_ + which) * in_.width; }
  GPU_DEVICE float* table_row(std::uint32_t key) const {
    return in_.dtable + static_cast<std::int64_t>(key) * in_.width;
  }
  GPU_DEVICE void store(float* row, const float (&sum)[4]) const {
    store_some<Fp32>(row + column_, sum, in_.width - column_, rule_.aligned);
  }

  const SumRule& rule_;
  const EmbeddingGradient& in_;
  std::int64_t window_, first_, end_;
  int column_;
};

GPU_KERNEL(window_threads)
embedding_window_kernel(const SumRule rule) {
  const WindowColumns columns(rule);
  if (columns.exists()) columns.add_window();
}

GPU_KERNEL(window_threads)
embedding_windows_kernel(const SumRule rule) {
  const WindowColumns columns(rule);
  if (columns.exists()) columns.add_windows();
}

// How the tokens are divided for sorting.
struct Chunks {
  std::int64_t rounds, count;
  explicit Chunks(std::int64_t tokens)
      : rounds(std::max<std::int64_t>(1, blocks_for(tokens, sort_threads * most_chunks))),
        count(blocks_for(tokens, sort_threads * rounds)) {}
};

std::int64_t windows_of(std::int64_t tokens) { return blocks_for(tokens, window); }

// Sorts the tokens; returns their keys, which their numbers follow.
const std::uint32_t* sort_tokens(const EmbeddingGradient& in, gpu::Stream stream) {
  const Chunks chunks(in.tokens);
  auto *from = in.numbers, *to = in.numbers + 2 * in.tokens;
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(in.vocabulary - 1))));
  constexpr int bytes = static_cast<int>(sizeof(std::uint32_t)) * sort_threads;
  for (int shift = 0; shift < bits; shift += digit_bits) {
    const SortPass pass{.ids = shift == 0 ? in.ids : nullptr,
                        .keys = from,
                        .tokens = from + in.tokens,
                        .sorted_keys = to,
                        .sorted_tokens = to + in.tokens,
                        .counts = in.numbers + 4 * in.tokens,
                        .count = in.tokens,
                        .chunks = chunks.count,
                        .rounds = chunks.rounds,
                        .shift = shift};
    gpu::launch(embedding_count_kernel, chunks.count, sort_threads, bytes, stream, pass);
    gpu::launch(embedding_sort_kernel, chunks.count, sort_threads, 2 * bytes, stream, pass);
    std::swap(from, to);
  }
  return from;
}

}  // namespace

std::int64_t embedding_gradient_numbers(std::int64_t tokens) { return 4 * tokens + Chunks(tokens).count * digits; }

std::int64_t embedding_gradient_sums(std::int64_t tokens, int width) { return 2 * windows_of(tokens) * width; }

void embedding_gradient(const EmbeddingGradient& arguments, void* stream_pointer) {
  if (arguments.tokens == 0 || arguments.width == 0) return;
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  const auto* keys = sort_tokens(arguments, stream);
  const SumRule rule{.in = arguments,
                     .keys = keys,
                     .tokens = keys + arguments.tokens,
                     .windows = windows_of(arguments.tokens),
                     .tiles = blocks_for(arguments.width, tile_columns),
                     .aligned = arguments.width % columns_of_lane == 0 && is_aligned_to(arguments.dy, 16) &&
                                is_aligned_to(arguments.dtable, 16) && is_aligned_to(arguments.sums, 16)};
  const auto blocks = blocks_for(rule.windows * rule.tiles, window_warps);
  gpu::launch(embedding_window_kernel, blocks, window_threads, 0, stream, rule);
  gpu::launch(embedding_windows_kernel, blocks, window_threads, 0, stream, rule);
}

}  // namespace metaformer::cuda
