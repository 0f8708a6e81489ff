#include "ops/region_vectors.h"

#include <algorithm>

#include "cpu/table_rows.h"
#include "ops/parallel.h"
#include "ops/recompute.h"
#include "ops/sparse_rows.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// use(features, the first text, a part of the regions with that and some of the texts behind it) for all of them.
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

template <class Use>
void for_each_block(std::int64_t width, const Use& use) {
  at::parallel_for(0, blocks_of_features(width), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto block = begin; block < end; ++block) use(block_of_features(block, width));
  });
}

class RegionVectors : public torch::autograd::Function<RegionVectors> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows_bcp, const Tensor& weight_rd,
                        const Tensor& bias_d) {
    const auto regions = regions_of(rows_bcp, weight_rd, bias_d);
    auto y_bcd = torch::empty({regions.texts, regions.tokens, regions.width}, weight_rd.options());
    auto* y = y_bcd.data_ptr<float>();
    for_each_part(regions, [&](const FeatureRange& features, std::int64_t first, const Regions& part) {
      region_vectors(part, features, y + first * regions.tokens * regions.width);
    });
    context->save_for_backward({rows_bcp, y_bcd});
    context->saved_data["rows"] = weight_rd.size(0);
    return y_bcd;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a region embedding");
    const auto saved = context->get_saved_variables();
    const auto &rows_bcp = saved[0], &y_bcd = saved[1];
    const auto dy_bcd = gradients[0].masked_fill(y_bcd <= 0, 0).contiguous();
    return {
        {},
        context->needs_input_grad(1) ? table_gradient(rows_bcp, dy_bcd, context->saved_data["rows"].toInt()) : Tensor(),
        dy_bcd.sum(at::IntArrayRef{0, 1})};
  }

 private:
  static Tensor table_gradient(const Tensor& rows_bcp, const Tensor& dy_bcd, std::int64_t table_rows) {
    const auto regions = regions_of(rows_bcp, dy_bcd.size(2));
    SparseRows rows(table_rows);
    const auto* read = regions.rows;
    for (std::int64_t i = 0; i < rows_bcp.numel(); ++i)
      if (read[i] >= 0) rows.read(read[i]);
    auto values_sd = rows.make_values(regions.width, dy_bcd.options());
    const RegionSums sums{.slots = rows.slots(), .sums = values_sd.data_ptr<float>()};
    const auto* dy = dy_bcd.const_data_ptr<float>();
    for_each_block(regions.width,
                   [&](const FeatureRange& features) { add_region_gradients(regions, features, dy, sums); });
    return rows.gradient(values_sd);
  }
};

class GreatestRegionVectors : public torch::autograd::Function<GreatestRegionVectors> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows_bcp, const Tensor& weight_rd,
                        const Tensor& bias_d) {
    const auto regions = regions_of(rows_bcp, weight_rd, bias_d);
    auto y_bd = torch::empty({regions.texts, regions.width}, weight_rd.options());
    const auto tokens_bd = torch::empty({regions.texts, regions.width}, rows_bcp.options());
    auto* y = y_bd.data_ptr<float>();
    auto* tokens = tokens_bd.data_ptr<std::int32_t>();
    for_each_part(regions, [&](const FeatureRange& features, std::int64_t first, const Regions& part) {
      greatest_region_vectors(part, features, y + first * regions.width, tokens + first * regions.width);
    });
    context->save_for_backward({rows_bcp, tokens_bd});
    context->saved_data["rows"] = weight_rd.size(0);
    return y_bd;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a pooled region embedding");
    const auto saved = context->get_saved_variables();
    const auto &rows_bcp = saved[0], &tokens_bd = saved[1];
    const auto dy_bd = gradients[0].masked_fill(tokens_bd < 0, 0).contiguous();
    return {{},
            context->needs_input_grad(1)
                ? table_gradient(rows_bcp, tokens_bd, dy_bd, context->saved_data["rows"].toInt())
                : Tensor(),
            dy_bd.sum(0)};
  }

 private:
  static Tensor table_gradient(const Tensor& rows_bcp, const Tensor& tokens_bd, const Tensor& dy_bd,
                               std::int64_t table_rows) {
    const auto regions = regions_of(rows_bcp, dy_bd.size(1));
    const auto* tokens = tokens_bd.const_data_ptr<std::int32_t>();
    SparseRows rows(table_rows);
    for (std::int64_t i = 0; i < tokens_bd.numel(); ++i) {
      if (tokens[i] < 0) continue;
      const auto* region = regions.rows + (i / regions.width * regions.tokens + tokens[i]) * regions.places;
      for (std::int64_t place = 0; place < regions.places; ++place)
        if (region[place] >= 0) rows.read(region[place]);
    }
    auto values_sd = rows.make_values(regions.width, dy_bd.options());
    const RegionSums sums{.slots = rows.slots(), .sums = values_sd.data_ptr<float>()};
    const auto* dy = dy_bd.const_data_ptr<float>();
    for_each_block(regions.width,
                   [&](const FeatureRange& features) { add_greatest_gradients(regions, features, dy, tokens, sums); });
    return rows.gradient(values_sd);
  }
};

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

Tensor region_vectors(const Tensor& rows_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  if (has_kernel(weight_rd)) return RegionVectors::apply(rows_bcp.contiguous(), weight_rd, bias_d);
  return by_operators(rows_bcp, weight_rd, bias_d);
}

Tensor greatest_region_vectors(const Tensor& rows_bcp, const Tensor& weight_rd, const Tensor& bias_d) {
  if (has_kernel(weight_rd)) return GreatestRegionVectors::apply(rows_bcp.contiguous(), weight_rd, bias_d);
  const auto vectors_bcd = by_operators(rows_bcp, weight_rd, bias_d);
  const auto is_none_bc1 = (rows_bcp.select(2, 0) < 0).unsqueeze(2);
  return std::get<0>(vectors_bcd.masked_fill(is_none_bc1, 0).max(1));
}

}  // namespace metaformer
