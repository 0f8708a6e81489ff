#include <limits>

#include "base/error.h"
#include "cuda/rotary.h"
#include "cuda/rows.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256;

// The arguments and constants of every thread.
struct RotaryRule {
  Rotary in;
  int pair_groups = 0, groups = 0;  // of four features: of the first coordinates; with those of the copied features
  bool aligned = false;             // all arrays, to four entries
};

// Four neighbouring features of a token in all its heads, so that cosines and sines are loaded once.
template <class Format>
class RotaryGroup {
 public:
  GPU_DEVICE RotaryGroup(const RotaryRule& rule, unsigned token_of_all, int group)
      : rule_(rule), in_(rule.in), group_(group) {
    const auto tokens = static_cast<unsigned>(in_.tokens), text = token_of_all / tokens;
    token_ = token_of_all - text * tokens;
    x_ = static_cast<const typename Format::Element*>(in_.x) + offset(in_.x_strides, text);
    y_ = static_cast<typename Format::Element*>(in_.y) + offset(in_.y_strides, text);
  }

  GPU_DEVICE void run() const { group_ < rule_.pair_groups ? rotate() : copy(); }

 private:
  GPU_DEVICE std::int64_t offset(const HeadStrides& strides, unsigned text) const {
    return text * strides.text + token_ * strides.token;
  }

  GPU_DEVICE void rotate() const {
    const int first = group_ * columns_of_lane, second = first + in_.pairs, count = in_.pairs - first;
    const auto at = static_cast<std::int64_t>(token_) * in_.pairs + first;
    unsigned cosines[4], sines[4];
    load_some<Fp32>(cosines, in_.cosines + at, count, rule_.aligned);
    load_some<Fp32>(sines, in_.sines + at, count, rule_.aligned);
    GPU_UNROLL_BY(4)
    for (std::int64_t head = 0; head < in_.heads; ++head) {
      const auto* x = x_ + head * in_.x_strides.head;
      auto* y = y_ + head * in_.y_strides.head;
      unsigned a_words[4], b_words[4];
      load_some<Format>(a_words, x + first, count, rule_.aligned);
      load_some<Format>(b_words, x + second, count, rule_.aligned);
      float turned_a[4], turned_b[4];
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float a = entry_of<Format>(a_words, i), b = entry_of<Format>(b_words, i);
        const float cosine = gpu::float_of(cosines[i]), sine = in_.direction * gpu::float_of(sines[i]);
        turned_a[i] = a * cosine - b * sine;
        turned_b[i] = b * cosine + a * sine;
      }
      store_some<Format>(y + first, turned_a, count, rule_.aligned);
      store_some<Format>(y + second, turned_b, count, rule_.aligned);
    }
  }

  GPU_DEVICE void copy() const {
    const int first = 2 * in_.pairs + (group_ - rule_.pair_groups) * columns_of_lane, count = in_.width - first;
    GPU_UNROLL_BY(4)
    for (std::int64_t head = 0; head < in_.heads; ++head) {
      unsigned words[4];
      load_some<Format>(words, x_ + head * in_.x_strides.head + first, count, rule_.aligned);
      float values[4];
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) values[i] = entry_of<Format>(words, i);
      store_some<Format>(y_ + head * in_.y_strides.head + first, values, count, rule_.aligned);
    }
  }

  const RotaryRule& rule_;
  const Rotary& in_;
  int group_;
  unsigned token_;  // in its text
  const typename Format::Element* x_;
  typename Format::Element* y_;
};

GPU_KERNEL(threads)
rotary_kernel(const RotaryRule rule) {
  const auto item = static_cast<unsigned>(gpu::block_index()) * threads + static_cast<unsigned>(gpu::thread_index());
  const auto groups = static_cast<unsigned>(rule.groups), token = item / groups;
  if (!gpu::within(token < rule.in.texts * rule.in.tokens)) return;
  with_format(rule.in.element,
              [&]<class Format>() { RotaryGroup<Format>(rule, token, static_cast<int>(item - token * groups)).run(); });
}

bool are_aligned(const HeadStrides& strides) {
  return strides.text % columns_of_lane == 0 && strides.head % columns_of_lane == 0 &&
         strides.token % columns_of_lane == 0;
}

bool is_aligned(const Rotary& in) {
  const auto bytes = bytes_of_four(in.element);
  return in.width % columns_of_lane == 0 && in.pairs % columns_of_lane == 0 && are_aligned(in.x_strides) &&
         are_aligned(in.y_strides) && is_aligned_to(in.x, bytes) && is_aligned_to(in.y, bytes) &&
         is_aligned_to(in.cosines, 16) && is_aligned_to(in.sines, 16);
}

}  // namespace

void rotary(const Rotary& arguments, void* stream) {
  const auto pair_groups = blocks_for(arguments.pairs, columns_of_lane);
  const auto groups = pair_groups + blocks_for(arguments.width - 2 * arguments.pairs, columns_of_lane);
  const auto items = arguments.texts * arguments.tokens * groups;
  if (items == 0 || arguments.heads == 0) return;
  if (items > std::numeric_limits<std::int32_t>::max())
    throw Error(ExitCode::failure, "kernel of rotary positions: there are more rows than a grid holds");
  const RotaryRule rule{.in = arguments,
                        .pair_groups = static_cast<int>(pair_groups),
                        .groups = static_cast<int>(groups),
                        .aligned = is_aligned(arguments)};
  gpu::launch(rotary_kernel, blocks_for(items, threads), threads, 0, static_cast<gpu::Stream>(stream), rule);
}

}  // namespace metaformer::cuda
