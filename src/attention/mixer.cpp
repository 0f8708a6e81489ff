#include "attention/mixer.h"

#include <fmt/format.h>

#include "attention/mixers.h"
#include "core/error.h"

namespace metaformer {

torch::Tensor MixerState::extend(std::size_t slot, const torch::Tensor& fresh, std::int64_t dim) {
  if (slot >= buffers_.size()) buffers_.resize(slot + 1);
  auto& [storage, length] = buffers_[slot];
  const auto count = fresh.size(dim);
  require_room(length + count);
  if (!storage.defined()) {
    auto sizes = fresh.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = capacity_;
    storage = torch::empty(sizes, fresh.options());
  }
  storage.narrow(dim, length, count).copy_(fresh);
  length += count;
  return storage.narrow(dim, 0, length);
}

void MixerState::require_room(std::int64_t tokens) const {
  if (tokens > capacity_)
    throw Error(ExitCode::failure, fmt::format("a cache of {} tokens cannot hold {}", capacity_, tokens));
}

std::int64_t MixerState::append(std::size_t slot) {
  auto& length = buffers_.at(slot).length;
  require_room(length + 1);
  return length++;
}

void MixerState::clear() {
  for (auto& buffer : buffers_) buffer.length = 0;
}

std::int64_t MixerState::bytes() const {
  std::int64_t total = 0;
  for (const auto& buffer : buffers_)
    if (buffer.storage.defined()) total += static_cast<std::int64_t>(buffer.storage.nbytes());
  return total;
}

std::shared_ptr<Mixer> make_mixer(const MixerOptions& options, const MixerShape& shape) {
  return std::visit([&](const auto& chosen) { return make(chosen, shape); }, options);
}

namespace {

constexpr std::array backends = {Backend::reference, Backend::composed};

void add_metrics(std::vector<MixerOptions>& all) {
  for (const auto constraint :
       {MetricConstraint::symmetric, MetricConstraint::psd, MetricConstraint::diagonal, MetricConstraint::identity}) {
    for (const auto backend : backends) {
      all.push_back(MetricOptions{.constraint = constraint, .score = MetricScore::bilinear, .backend = backend});
      if (constraint != MetricConstraint::symmetric)
        all.push_back(MetricOptions{.constraint = constraint, .score = MetricScore::distance, .backend = backend});
    }
  }
  all.push_back(MetricOptions{
      .constraint = MetricConstraint::symmetric, .score = MetricScore::as_published, .backend = Backend::automatic});
}

}  // namespace

std::vector<MixerOptions> every_mixer() {
  std::vector<MixerOptions> all;
  for (const auto backend : backends) {
    all.push_back(ScaledDotProductOptions{.backend = backend});
    for (const auto form : {QuadraticForm::projected, QuadraticForm::full})
      all.push_back(QuadraticOptions{.form = form, .backend = backend});
    for (const std::int64_t window : {1, 2, 3, 40, 0})
      all.push_back(AveragePoolingOptions{.window = {window}, .backend = backend});
  }
  add_metrics(all);
  all.push_back(IdentityOptions{});
  all.push_back(NoneOptions{});
  return all;
}

}  // namespace metaformer
