#include "train/optim/adagrad.h"

#include <algorithm>

#include "cpu/table_rows.h"
#include "ops/parallel.h"

namespace metaformer {

Adagrad::Adagrad(ParameterBuffer& parameters, const AdagradConfig& config, GradientScale scale)
    : parameters_(parameters),
      config_(config),
      scale_(std::move(scale)),
      ranges_(decay_ranges(parameters, config, [](const auto& view) { return view.gradient_rows == nullptr; })),
      sums_(torch::zeros_like(parameters.values())),
      steps_(torch::ones({}, parameters.values().options().dtype(torch::kFloat))) {
  for (const auto& view : parameters.views()) {
    if (view.gradient_rows == nullptr) continue;
    for (const auto& range : decay_ranges(parameters, config, [&](const auto& other) { return &other == &view; }))
      tables_.push_back({.view = view, .range = range});
  }
}

template <class Rate>
void Adagrad::update(const DecayRange& range, const Rate& learning_rate) {
  const auto part = [&](const torch::Tensor& buffer) { return buffer.narrow(0, range.first, range.count); };
  at::_fused_adagrad_({part(parameters_.values())}, {part(parameters_.gradients())}, {part(sums_)}, {steps_},
                      rate_of(range, learning_rate), /*lr_decay=*/0, range.weight_decay, config_.epsilon,
                      /*maximize=*/false, as_optional(scale_.divisor), as_optional(scale_.found_inf));
}

void Adagrad::update_listed_rows(const Table& table, double learning_rate) {
  const auto start_of = [&](const torch::Tensor& buffer) { return buffer.data_ptr<float>() + table.view.offset; };
  const auto& rows = table.view.gradient_rows->listed();
  const AdagradRows listed = {.values = start_of(parameters_.values()),
                              .gradients = start_of(parameters_.gradients()),
                              .sums = start_of(sums_),
                              .rows = rows.data(),
                              .width = table.view.row_width()};
  const auto rate = static_cast<float>(rate_of(table.range, learning_rate));
  const auto grain = std::max<std::int64_t>(1, (1 << 14) / listed.width);
  at::parallel_for(0, std::ssize(rows), grain, [&](std::int64_t first, std::int64_t last) {
    adagrad_rows(listed, first, last, rate, static_cast<float>(config_.epsilon));
  });
}

void Adagrad::step(double learning_rate) {
  const torch::NoGradGuard no_grad;
  for (const auto& range : ranges_) update(range, learning_rate);
  const auto& values = parameters_.values();
  const bool has_kernel = values.is_cpu() && values.scalar_type() == torch::kFloat && !scale_.divisor.defined();
  for (const auto& table : tables_)
    if (has_kernel && table.view.has_listed_rows() && table.range.weight_decay == 0)
      update_listed_rows(table, learning_rate);
    else
      update(table.range, learning_rate);
}

void Adagrad::step(const torch::Tensor& learning_rate) {
  const torch::NoGradGuard no_grad;
  for (const auto& range : ranges_) update(range, learning_rate);
  for (const auto& table : tables_) update(table.range, learning_rate);
}

void Adagrad::reset() { sums_.zero_(); }

NamedTensors Adagrad::state() const {
  NamedTensors state;
  for (const auto& view : parameters_.views())
    if (view.rate > 0) state.emplace_back("squared_gradients." + view.name, ParameterBuffer::part(sums_, view));
  return state;
}

}  // namespace metaformer
