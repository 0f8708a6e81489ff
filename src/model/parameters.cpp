#include "model/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "attention/mixer.h"
#include "base/random.h"
#include "base/text.h"
#include "ops/kernel.h"

namespace metaformer {

std::optional<std::int64_t> block_number(std::string_view name) {
  constexpr std::string_view blocks = "blocks.", layer = "_l";
  if (const auto found = name.find(blocks); found != std::string_view::npos) {
    const auto rest = name.substr(found + blocks.size());
    return as_number<std::int64_t>(rest.substr(0, rest.find('.')));
  }
  const auto found = name.rfind(layer);
  if (found == std::string_view::npos) return std::nullopt;
  const auto rest = name.substr(found + layer.size());
  return as_number<std::int64_t>(rest.substr(0, rest.find('.')));
}

bool is_below(std::string_view name, std::string_view beginning) {
  return name.starts_with(beginning) && (name.size() == beginning.size() || name[beginning.size()] == '.');
}

bool has_part(std::string_view name, std::string_view part) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", part)) != std::string::npos;
}

namespace {

// "transformer.blocks.0", "head".
std::string short_beginning(const std::string& name) {
  const auto blocks = name.find("blocks.");
  return name.substr(0, blocks == std::string::npos ? name.rfind('.') : name.find('.', blocks + 7));
}

// "transformer.token_embedding", "mixer.projection" (in every block).
std::string short_part(const std::string& name) {
  const auto blocks = name.find("blocks.");
  auto part = blocks == std::string::npos ? name : name.substr(name.find('.', blocks + 7) + 1);
  if (part.ends_with(".weight") || part.ends_with(".bias")) part.resize(part.rfind('.'));
  return part;
}

}  // namespace

const NameForm name_by_beginning = {is_below, "begins with it", short_beginning};
const NameForm name_by_part = {has_part, "part of a name", short_part};

void require_named(std::string_view key, const std::string& given, const std::vector<std::string>& names,
                   const NameForm& form, std::string_view what) {
  if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return form.matches(name, given); })) return;
  std::vector<std::string> candidates;
  for (const auto& name : names)
    if (auto candidate = form.short_name(name);
        std::find(candidates.begin(), candidates.end(), candidate) == candidates.end())
      candidates.push_back(std::move(candidate));
  fail_usage("{}: {}: no {} has this name or {}; there are {}{}", key, in_quotes(given), what, form.alternative,
             fmt::join(candidates, ", "), did_you_mean(given, candidates));
}

namespace {

// Saxe, McClelland, Ganguli 2014: the Q of a QR decomposition of normal numbers, with the signs that make it uniform.
void draw_orthogonal(torch::Tensor value, double factor) {
  const bool wide = value.size(0) < value.size(1);
  const auto [q, r] = torch::linalg_qr(wide ? value.t() : value);
  const auto signed_q = q * r.diagonal().sign();
  value.copy_((wide ? signed_q.t() : signed_q) * factor);
}

void draw(torch::Tensor value, const Init& init, std::uint64_t seed) {
  switch (init.kind) {
    case Init::Kind::zeros:
      value.zero_();
      break;
    case Init::Kind::ones:
      value.fill_(1);
      break;
    case Init::Kind::normal:
      value.normal_(0, init.std, at::detail::createCPUGenerator(seed));
      break;
    case Init::Kind::uniform:
      value.uniform_(init.low, init.high, at::detail::createCPUGenerator(seed));
      break;
    case Init::Kind::orthogonal:
      draw_orthogonal(value.normal_(0, 1, at::detail::createCPUGenerator(seed)), init.std);
      break;
    case Init::Kind::given:
      break;
  }
  if (init.function == nullptr) return;
  auto flat = value.view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) flat[i] = init.function(flat[i].item<double>());
}

}  // namespace

void initialise(const SpecifiedParameter& parameter, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const Rng streams(seed, RandomPurpose::initialisation);
  draw(parameter.value, parameter.spec.init, streams.bits(hash_name(parameter.name)));
}

void initialise(torch::nn::Module& module, std::uint64_t seed, double projection_variance) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : specified_parameters(module)) initialise(parameter, seed);
  module.apply([&](torch::nn::Module& part) {
    if (auto* mixer = dynamic_cast<Mixer*>(&part)) mixer->scale_initial_scores(projection_variance);
  });
}

void initialise(SequenceModel& model, std::uint64_t seed) {
  // A projection of a normalised vector is the sum of `width` products.
  initialise(model, seed, static_cast<double>(model.width()) * usual_std * usual_std);
}

namespace {

// Views start on cache lines. The elements between them stay zero.
constexpr std::int64_t alignment = 16;

std::int64_t aligned(std::int64_t count) { return (count + alignment - 1) / alignment * alignment; }

}  // namespace

ParameterBuffer::ParameterBuffer(const std::vector<SpecifiedParameter>& parameters) {
  for (const auto& [name, value, spec] : parameters) views_.push_back({spec, name, value, /*offset=*/0, value.numel()});
  std::stable_sort(views_.begin(), views_.end(), [](const View& a, const View& b) { return a.decay < b.decay; });
  std::int64_t total = 0;
  for (auto& view : views_) {
    view.offset = total;
    total += aligned(view.count);
  }

  const torch::NoGradGuard no_grad;
  const auto options =
      views_.empty() ? torch::TensorOptions() : views_.front().parameter.options().requires_grad(false);
  values_ = torch::zeros({total}, options);
  gradients_ = torch::zeros({total}, options);
  for (auto& view : views_) {
    auto place = part(values_, view);
    place.copy_(view.parameter);
    view.parameter.set_data(place);
    view.parameter.mutable_grad() = part(gradients_, view);
  }
}

ParameterBuffer::ParameterBuffer(const ParameterBuffer& whole, std::int64_t first, std::int64_t count)
    : values_(whole.values_.narrow(0, first, count)), gradients_(whole.gradients_.narrow(0, first, count)) {
  for (auto view : whole.views_) {
    const auto begin = std::max(view.offset, first), end = std::min(view.offset + view.count, first + count);
    if (begin >= end) continue;
    const bool is_whole = end - begin == view.count;
    const auto shape = is_whole ? view.parameter.sizes().vec() : std::vector{end - begin};
    view.offset = begin - first;
    view.count = end - begin;
    view.gradient_rows = nullptr;
    view.parameter = values_.narrow(0, view.offset, view.count).view(shape).detach();
    view.parameter.mutable_grad() = gradients_.narrow(0, view.offset, view.count).view(shape);
    views_.push_back(std::move(view));
  }
}

void ParameterBuffer::keep_half(torch::ScalarType type) {
  std::vector<HalfWeights::Part> parts;
  for (const auto& view : views_)
    if (view.gradient_rows == nullptr) parts.push_back({view.parameter, view.offset, aligned(view.count)});
  half_.reset();  // before another copy of the same values
  half_ = std::make_unique<HalfWeights>(values_, std::move(parts), type);
}

void ParameterBuffer::set_rates(const std::function<double(const View&)>& rate_of) {
  for (auto& view : views_) {
    view.rate = view.is_trained ? rate_of(view) : 0;
    view.parameter.set_requires_grad(view.rate > 0);
  }
}

template <class Use>
void ParameterBuffer::for_each_gradient(const Use& use) {
  const torch::NoGradGuard no_grad;
  std::int64_t first = 0;  // of the next range to use
  for (const auto& view : views_) {
    if (!view.has_listed_rows()) continue;
    use(gradients_.narrow(0, first, view.offset - first));
    first = view.offset + view.count;
    const auto& rows = view.gradient_rows->listed();
    const auto gradient_rd = part(gradients_, view).view({-1, view.row_width()});
    constexpr std::int64_t grain = 64;
    at::parallel_for(0, std::ssize(rows), grain, [&](std::int64_t begin, std::int64_t end) {
      const torch::NoGradGuard no_grad_in_thread;
      for (auto i = begin; i < end; ++i) use(gradient_rd.select(0, rows[static_cast<std::size_t>(i)]));
    });
  }
  use(gradients_.narrow(0, first, gradients_.numel() - first));
}

void ParameterBuffer::clear_gradients() {
  for_each_gradient([](torch::Tensor part) {
    if (part.is_cpu() && part.numel() < 1 << 16)  // without LibTorch's overhead, for rows
      std::memset(part.data_ptr(), 0, part.nbytes());
    else
      part.zero_();
  });
  for (const auto& view : views_)
    if (view.gradient_rows != nullptr) view.gradient_rows->clear();
}

void ParameterBuffer::scale_gradients(const torch::Tensor& factor) {
  for_each_gradient([&](torch::Tensor part) { part.mul_(factor); });
}

const ParameterBuffer::View* ParameterBuffer::first_not_finite(const torch::Tensor& buffer) const {
  if (buffer.isfinite().all().item<bool>()) return nullptr;
  const auto found = std::find_if(views_.begin(), views_.end(),
                                  [&](const View& view) { return !part(buffer, view).isfinite().all().item<bool>(); });
  return found == views_.end() ? nullptr : &*found;
}

torch::Tensor ParameterBuffer::part(const torch::Tensor& buffer, const View& view) {
  return buffer.narrow(0, view.offset, view.count).view(view.parameter.sizes());
}

}  // namespace metaformer
