#include "ops/long_convolution.h"

#include <ATen/autocast_mode.h>

namespace metaformer {

namespace {

using torch::Tensor;

Tensor same(const Tensor& one, const Tensor& other) { return (one == other).logical_and(one >= 0); }

// The newest token alone, as in generation.
Tensor of_newest(const Tensor& z_bed, const Tensor& filter_ld, const Tensor& segment_be) {
  const auto e = z_bed.size(1);
  auto seen_bed = z_bed * filter_ld.narrow(0, 0, e).flip(0);
  if (segment_be.defined()) seen_bed = seen_bed * same(segment_be, segment_be.narrow(1, e - 1, 1)).unsqueeze(2);
  return seen_bed.sum(1, true);
}

// Of distances below `reach`.
Tensor of_near(const Tensor& z_bed, const Tensor& filter_ld, const Tensor& segment_be, std::int64_t reach) {
  const auto e = z_bed.size(1);
  auto y_bed = z_bed * filter_ld.select(0, 0);
  for (std::int64_t distance = 1; distance < std::min(reach, e); ++distance) {
    const auto meet = same(segment_be.narrow(1, distance, e - distance), segment_be.narrow(1, 0, e - distance));
    const auto term = z_bed.narrow(1, 0, e - distance) * filter_ld.select(0, distance) * meet.unsqueeze(2);
    y_bed = y_bed + torch::constant_pad_nd(term, {0, 0, distance, 0});
  }
  return y_bed;
}

// Of pairs of blocks of `size` tokens, with the distances from `least` on.
class BlockProducts {
 public:
  BlockProducts(const Tensor& z_bed, const Tensor& filter_ld, Tensor segment_be, std::int64_t size, std::int64_t least)
      : size_(size), count_((z_bed.size(1) + size - 1) / size) {
    const auto e = z_bed.size(1), l = filter_ld.size(0), behind = count_ * size - e;
    z_dbjs_ = torch::constant_pad_nd(z_bed, {0, 0, 0, behind})
                  .view({z_bed.size(0), count_, size, z_bed.size(2)})
                  .permute({3, 0, 1, 2});
    // A zero for what no filter reaches, at place 0.
    filter_dl_ = torch::constant_pad_nd(filter_ld.narrow(0, least, l - least), {0, 0, least + 1, behind + size}).t();
    if (!segment_be.defined()) return;
    segment_bjs_ = torch::constant_pad_nd(segment_be, {0, behind}, -1).view({z_bed.size(0), count_, size});
    z_dbjs_ = z_dbjs_ * same(segment_bjs_, segment_bjs_.narrow(2, size - 1, 1));  // what goes on into the next block
  }

  // All sums, [b, e, d].
  Tensor sums(std::int64_t first_lag, std::int64_t e) {
    auto y_dbjs = torch::zeros_like(z_dbjs_);
    for (auto lag = first_lag; lag < count_; ++lag) {
      const auto read_dbjs = z_dbjs_.narrow(2, 0, count_ - lag);
      auto part_dbjs = torch::bmm(read_dbjs.flatten(1, 2), filter_block_dsr(lag)).view_as(read_dbjs);
      if (segment_bjs_.defined()) {
        const auto end_bj1 = segment_bjs_.narrow(1, 0, count_ - lag).narrow(2, size_ - 1, 1);
        part_dbjs = part_dbjs * same(segment_bjs_.narrow(1, lag, count_ - lag), end_bj1);
      }
      y_dbjs = y_dbjs + torch::constant_pad_nd(part_dbjs, {0, 0, lag, 0});
    }
    return y_dbjs.permute({1, 2, 3, 0}).flatten(1, 2).narrow(1, 0, e);
  }

 private:
  // filter_(lag size + r - s) of the places s and r in two blocks.
  Tensor filter_block_dsr(std::int64_t lag) const {
    const auto place = torch::arange(size_, torch::TensorOptions().dtype(torch::kLong).device(filter_dl_.device()));
    const auto distance_sr = lag * size_ + place.unsqueeze(0) - place.unsqueeze(1);
    return filter_dl_.index_select(1, (distance_sr + 1).clamp_min(0).flatten()).view({-1, size_, size_});
  }

  std::int64_t size_, count_;
  Tensor z_dbjs_, filter_dl_, segment_bjs_;
};

}  // namespace

Tensor long_convolution(const Tensor& z_bed, const Tensor& filter_ld, const Tensor& segment_be, std::int64_t newest) {
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const auto type = torch::promote_types(z_bed.scalar_type(), torch::kFloat);
  const auto z = z_bed.to(type), filter = filter_ld.to(type);
  const auto e = z.size(1);
  if (newest == 1) return of_newest(z, filter, segment_be).to(z_bed.scalar_type());
  // Within a block segments may begin, so that there the pairs of tokens are looked at one distance at a time.
  const bool has_segments = segment_be.defined();
  const std::int64_t size = has_segments ? 16 : 64, least = has_segments ? size : 0;
  auto y_bed = has_segments ? of_near(z, filter, segment_be, size) : Tensor();
  if (!has_segments || e > size) {
    const auto far_bed =
        BlockProducts(z, filter, segment_be, size, std::min(least, filter.size(0))).sums(has_segments ? 1 : 0, e);
    y_bed = has_segments ? y_bed + far_bed : far_bed;
  }
  return y_bed.narrow(1, e - newest, newest).to(z_bed.scalar_type());
}

}  // namespace metaformer
