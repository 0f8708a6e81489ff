#include "infer/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace metaformer {

std::int32_t TokenPicker::pick(std::span<const double> logits, double uniform) {
  order_.clear();
  auto never = options_.never.begin();
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    const bool is_drawn = never == options_.never.end() || *never != id;
    is_drawn ? order_.push_back(id) : void(++never);
  }
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const auto x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (options_.temperature == 0) return *std::min_element(order_.begin(), order_.end(), likelier);
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size()) {
    std::nth_element(order_.begin(), order_.begin() + options_.top_k, order_.end(), likelier);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::sort(order_.begin(), order_.end(), likelier);
  const double highest = logits[static_cast<std::size_t>(order_[0])];
  weights_.clear();
  for (const auto token : order_)
    weights_.push_back(std::exp((logits[static_cast<std::size_t>(token)] - highest) / options_.temperature));
  double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (options_.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < weights_.size() && (count == 0 || kept < options_.top_p * total)) kept += weights_[count++];
    weights_.resize(count);
    total = kept;
  }
  double remaining = uniform * total;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    remaining -= weights_[i];
    if (remaining < 0) return order_[i];
  }
  return order_[weights_.size() - 1];
}

static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t most_prompt_tokens(const SequenceModel& model) {
  return model.has_endless_state() ? unlimited : model.context();
}

std::string prompt_cut(const SequenceModel& model, std::size_t prompt_tokens) {
  const auto most = most_prompt_tokens(model);
  if (static_cast<std::int64_t>(prompt_tokens) <= most) return "";
  return fmt::format("the prompt has {} tokens; the model sees the last {} of them (model.context)", prompt_tokens,
                     most);
}

ContextWindow::ContextWindow(std::int64_t context, WindowKind kind) : ContextWindow(context, kind, {}) {}

ContextWindow::ContextWindow(std::int64_t context, WindowKind kind, std::span<const std::int32_t> prompt)
    : context_(context), kind_(kind) {
  if (context < unlimited) tokens_.reserve(static_cast<std::size_t>(context) + 1);
  const auto seen = std::min(prompt.size(), static_cast<std::size_t>(context));
  tokens_.assign(prompt.end() - static_cast<std::ptrdiff_t>(seen), prompt.end());
}

bool ContextWindow::push(std::int32_t token) {
  tokens_.push_back(token);
  if (static_cast<std::int64_t>(tokens_.size()) <= context_) return false;
  tokens_.erase(tokens_.begin(), tokens_.end() - tokens_kept(context_, kind_));
  return true;
}

TextGenerator::TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt,
                             const SamplingOptions& options, torch::Device device, std::int64_t samples,
                             MakeGraph make_graph)
    : model_(model),
      options_(options),
      device_(device),
      parameters_(count_parameters(model).all),
      threads_(at::get_num_threads()),
      threads_now_(threads_),
      picker_(options) {
  for (std::int64_t sample = 0; sample < samples; ++sample)
    windows_.emplace_back(most_prompt_tokens(model), options.window, prompt);
  fresh_ = static_cast<std::int64_t>(windows_.front().tokens().size());
  if (!options.cached) return;
  if (!make_graph && device.is_cuda()) make_graph = make_cuda_graph;
  if (options.graphs && make_graph && should_record(model, samples)) {
    on_device_ = std::make_unique<DeviceGenerator>(model, windows_.front().tokens(), samples, options, device,
                                                   std::move(make_graph));
  } else {
    make_cache();
  }
}

TextGenerator::~TextGenerator() { at::set_num_threads(threads_); }

// A few tokens through a small model are over before a second thread has begun, and where another program holds a core,
// waiting for that thread costs a hundred times what it saves.
void TextGenerator::set_threads(std::size_t tokens) {
  constexpr double operations_worth_sharing = 1e8;
  if (!device_.is_cpu()) return;
  const bool shares = 2.0 * static_cast<double>(parameters_) * static_cast<double>(tokens) >= operations_worth_sharing;
  const int threads = shares ? threads_ : 1;
  if (threads != std::exchange(threads_now_, threads)) at::set_num_threads(threads);
}

void TextGenerator::make_cache() {
  const auto samples = static_cast<std::int64_t>(windows_.size());
  fresh_ = static_cast<std::int64_t>(windows_.front().tokens().size());
  state_ = model_.new_state(samples, model_.context());
  decoder_ = model_.decoder(samples);
}

torch::Tensor TextGenerator::encode(const torch::Tensor& ids_bc) {
  if (!model_.has_endless_state()) return model_.evaluate(Batch{.ids_bc = ids_bc}, state_.get()).select(1, -1);
  const auto context = model_.context(), length = ids_bc.size(1);
  const auto passing = state_ ? nullptr : model_.new_state(ids_bc.size(0), context);
  torch::Tensor logits_bv;
  for (std::int64_t first = 0; first < length; first += context) {
    const auto segment_bc = ids_bc.narrow(1, first, std::min(context, length - first));
    logits_bv = model_.evaluate(Batch{.ids_bc = segment_bc}, state_ ? state_.get() : passing.get()).select(1, -1);
  }
  return logits_bv;
}

void TextGenerator::encode_windows() {
  std::vector<std::int64_t> ids;
  for (const auto& window : windows_) {
    const auto& tokens = window.tokens();
    ids.insert(ids.end(), state_ ? tokens.end() - fresh_ : tokens.begin(), tokens.end());
  }
  set_threads(ids.size());
  const auto ids_bc =
      torch::tensor(at::ArrayRef<std::int64_t>(ids)).view({static_cast<std::int64_t>(windows_.size()), -1});
  const auto logits_bv = encode(ids_bc.to(device_)).to(torch::kCPU, torch::kDouble).contiguous();
  logits_bv_.assign(logits_bv.data_ptr<double>(), logits_bv.data_ptr<double>() + logits_bv.numel());
  if (decoder_) decoder_->resume(*state_);
}

void TextGenerator::find_logits() {
  if (!decoder_ || state_->length() == 0) {
    encode_windows();
    return;
  }
  set_threads(tokens_b_.size());
  const auto logits_bv = decoder_->step(tokens_b_);
  logits_bv_.assign(logits_bv.begin(), logits_bv.end());
}

bool TextGenerator::take_from_device() {
  if (on_device_ == nullptr) return false;
  const auto tokens_b = on_device_->next();
  if (tokens_b.empty()) {
    on_device_.reset();
    make_cache();
    return false;
  }
  tokens_b_.assign(tokens_b.begin(), tokens_b.end());
  return true;
}

void TextGenerator::pick_tokens() {
  find_logits();
  const auto vocabulary = logits_bv_.size() / windows_.size();
  tokens_b_.resize(windows_.size());
  for (std::size_t sample = 0; sample < windows_.size(); ++sample) {
    const std::span<const double> logits_v(logits_bv_.data() + sample * vocabulary, vocabulary);
    const Rng rng(options_.seed, RandomPurpose::sampling, sample);
    tokens_b_[sample] = picker_.pick(logits_v, rng.uniform(drawn_));
  }
}

const std::vector<std::int32_t>& TextGenerator::next() {
  const torch::InferenceMode inference;
  if (!take_from_device()) pick_tokens();
  bool cut = false;
  for (std::size_t sample = 0; sample < windows_.size(); ++sample) cut = windows_[sample].push(tokens_b_[sample]);
  ++drawn_;
  fresh_ = 1;
  if (cut) start_window_again();
  return tokens_b_;
}

// Every token has another position now, so that what was remembered of it no longer holds.
void TextGenerator::start_window_again() {
  fresh_ = static_cast<std::int64_t>(windows_.front().tokens().size());
  if (options_.window == WindowKind::slide) {
    decoder_.reset();  // it will be so for every further token
    state_.reset();
  } else if (state_) {
    state_->reset();
  }
}

std::int64_t TextGenerator::cache_bytes() const { return state_ ? state_->bytes() : 0; }

std::string StopFilter::feed(const std::string& text) {
  held_ += text;
  std::size_t first_stop = std::string::npos, holds = 0;
  for (const auto& stop : stops_) {
    first_stop = std::min(first_stop, held_.find(stop));
    for (auto length = std::min(stop.size() - 1, held_.size()); length > holds; --length)
      if (held_.ends_with(stop.substr(0, length))) holds = length;
  }
  if (first_stop != std::string::npos) {
    stopped_ = true;
    auto shown = held_.substr(0, first_stop);
    held_.clear();
    return shown;
  }
  auto shown = held_.substr(0, held_.size() - holds);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace metaformer
