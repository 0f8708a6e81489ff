#include "ops/region_vectors.h"

#include <algorithm>
#include <vector>

#include "cpu/table_rows.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

Regions regions_of(const Tensor& rows_bcp, std::int64_t width) {
  return {.rows = rows_bcp.const_data_ptr<std::int32_t>(),
          .width = width,
          .texts = rows_bcp.size(0),
          .tokens = rows_bcp.size(1),
          .places = rows_bcp.size(2)};
}

Regions regions_of(const Tensor& rows_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  auto regions = regions_of(rows_bcp, weight_rd.size(1));
  regions.weight = weight_rd.const_data_ptr<float>();
  regions.bias = bias_d.const_data_ptr<float>();
  return regions;
}

FeatureRange block_of_features(std::int64_t block, std::int64_t width) {
  return {block * region_features, std::min(width, (block + 1) * region_features)};
}

std::int64_t blocks_of_features(std::int64_t width) { return (width + region_features - 1) / region_features; }

// Calls use(features, first text, part) for parts that cover all features and texts. A part is the regions of the first
// text and some of the texts after it.
template <class Use>
void for_each_part(const Regions& regions, const Use& use) {
  const auto texts = regions.texts;
  at::parallel_for(0, blocks_of_features(regions.width) * texts, 1, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const auto first = begin % texts;
      auto part = regions;
      part.texts = std::min(texts - first, end - begin);
      part.rows += first * regions.tokens * regions.places;
      use(block_of_features(begin / texts, regions.width), first, part);
      begin += part.texts;
    }
  });
}

// The sparse gradient of a table of `table_rows` rows. for_each_row(read) calls read(row) for every row that was read;
// add(features, sums) adds the gradients of some features to the slots of those rows.
template <class ForEachRow, class Add>
Tensor table_gradient(std::int64_t table_rows, const Tensor& dy, const ForEachRow& for_each_row, const Add& add) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(table_rows), -1);  // by row; -1: not read
  for_each_row([&](std::int32_t row) { slots[static_cast<std::size_t>(row)] = 0; });
  std::vector<std::int64_t> rows;  // by slot
  for (std::size_t row = 0; row < slots.size(); ++row) {
    if (slots[row] < 0) continue;
    slots[row] = static_cast<std::int32_t>(rows.size());
    rows.push_back(static_cast<std::int64_t>(row));
  }
  const auto width = dy.size(-1);
  const auto values_sd = torch::zeros({std::ssize(rows), width}, dy.options());
  const RegionSums sums{.slots = slots.data(), .sums = values_sd.data_ptr<float>()};
  at::parallel_for(0, blocks_of_features(width), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto block = begin; block < end; ++block) add(block_of_features(block, width), sums);
  });
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      /*sparse_dim=*/1, /*dense_dim=*/1, {table_rows, width}, torch::tensor(rows, torch::kLong).unsqueeze(0), values_sd,
      values_sd.options().layout(torch::kSparse), /*is_coalesced=*/true);
}

Tensors region_backward(const Backward& in, std::int64_t table_rows) {
  const auto &rows_bcp = in.saved[0], &y_bcd = in.saved[1];
  const auto dy_bcd = in.dy[0].masked_fill(y_bcd <= 0, 0).contiguous();
  const auto dbias_d = dy_bcd.sum(at::IntArrayRef{0, 1});
  if (!in.needs(0)) return {Tensor(), dbias_d};
  const auto regions = regions_of(rows_bcp, dy_bcd.size(2));
  const auto for_each_row = [&](const auto& read) {
    for (std::int64_t i = 0; i < rows_bcp.numel(); ++i)
      if (regions.rows[i] >= 0) read(regions.rows[i]);
  };
  return {table_gradient(table_rows, dy_bcd, for_each_row,
                         [&](const FeatureRange& features, const RegionSums& sums) {
                           add_region_gradients(regions, features, dy_bcd.const_data_ptr<float>(), sums);
                         }),
          dbias_d};
}

Tensors greatest_backward(const Backward& in, std::int64_t table_rows) {
  const auto &rows_bcp = in.saved[0], &tokens_bd = in.saved[1];
  const auto dy_bd = in.dy[0].masked_fill(tokens_bd < 0, 0).contiguous();
  const auto dbias_d = dy_bd.sum(0);
  if (!in.needs(0)) return {Tensor(), dbias_d};
  const auto regions = regions_of(rows_bcp, dy_bd.size(1));
  const auto* tokens = tokens_bd.const_data_ptr<std::int32_t>();
  const auto for_each_row = [&](const auto& read) {
    for (std::int64_t i = 0; i < tokens_bd.numel(); ++i) {
      if (tokens[i] < 0) continue;
      const auto* region = regions.rows + (i / regions.width * regions.tokens + tokens[i]) * regions.places;
      for (std::int64_t place = 0; place < regions.places; ++place)
        if (region[place] >= 0) read(region[place]);
    }
  };
  return {table_gradient(table_rows, dy_bd, for_each_row,
                         [&](const FeatureRange& features, const RegionSums& sums) {
                           add_greatest_gradients(regions, features, dy_bd.const_data_ptr<float>(), tokens, sums);
                         }),
          dbias_d};
}

bool has_kernel(const Tensor& weight_rd) { return weight_rd.is_cpu() && weight_rd.scalar_type() == torch::kFloat; }

Tensor by_operators(const Tensor& rows_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  auto sum_bcd = bias_d.view({1, 1, -1}).expand({rows_bcp.size(0), rows_bcp.size(1), -1});
  for (std::int64_t place = 0; place < rows_bcp.size(2); ++place) {
    const auto rows_bc = rows_bcp.select(2, place);
    const auto vectors_bcd = torch::embedding(weight_rd, rows_bc.clamp_min(0));
    sum_bcd = sum_bcd + vectors_bcd.masked_fill((rows_bc < 0).unsqueeze(2), 0);
  }
  return sum_bcd.relu();
}

}  // namespace

Tensor region_vectors(const Tensor& given_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  if (!has_kernel(weight_rd)) return by_operators(given_bcp, weight_rd, bias_d);
  const auto forward = [&](Tensors& saved) {
    const auto rows_bcp = given_bcp.contiguous();
    const auto regions = regions_of(rows_bcp, weight_rd, bias_d);
    const auto y_bcd = torch::empty({regions.texts, regions.tokens, regions.width}, weight_rd.options());
    auto* y = y_bcd.data_ptr<float>();
    for_each_part(regions, [&](const FeatureRange& features, std::int64_t first, const Regions& part) {
      region_vectors(part, features, y + first * regions.tokens * regions.width);
    });
    saved = {rows_bcp, y_bcd};
    return y_bcd;
  };
  return own_node("a region embedding", {weight_rd, bias_d}, forward,
                  [rows = weight_rd.size(0)](const Backward& in) { return region_backward(in, rows); });
}

Tensor greatest_region_vectors(const Tensor& given_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  if (!has_kernel(weight_rd)) {
    const auto is_none_bc1 = (given_bcp.select(2, 0) < 0).unsqueeze(2);
    return std::get<0>(by_operators(given_bcp, weight_rd, bias_d).masked_fill(is_none_bc1, 0).max(1));
  }
  const auto forward = [&](Tensors& saved) {
    const auto rows_bcp = given_bcp.contiguous();
    const auto regions = regions_of(rows_bcp, weight_rd, bias_d);
    const auto y_bd = torch::empty({regions.texts, regions.width}, weight_rd.options());
    const auto tokens_bd = torch::empty({regions.texts, regions.width}, rows_bcp.options());
    auto* y = y_bd.data_ptr<float>();
    auto* tokens = tokens_bd.data_ptr<std::int32_t>();
    for_each_part(regions, [&](const FeatureRange& features, std::int64_t first, const Regions& part) {
      greatest_region_vectors(part, features, y + first * regions.width, tokens + first * regions.width);
    });
    saved = {rows_bcp, tokens_bd};
    return y_bd;
  };
  return own_node("a pooled region embedding", {weight_rd, bias_d}, forward,
                  [rows = weight_rd.size(0)](const Backward& in) { return greatest_backward(in, rows); });
}

}  // namespace metaformer
