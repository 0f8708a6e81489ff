#include "infer/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/signals.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

// The maximum number of prompt tokens that a model sees: its context, or all with an endless state.
std::int64_t most_prompt_tokens(const SequenceModel& model) {
  return model.has_endless_state() ? unlimited : model.context();
}

// The number of newest tokens that are kept of context + 1.
std::int64_t tokens_kept(std::int64_t context, WindowKind kind) {
  return kind == WindowKind::slide ? context : std::max<std::int64_t>(1, context / 2);
}

}  // namespace

void require_finite_answers(std::int64_t unanswered, std::int64_t texts) {
  if (unanswered > 0)
    throw Error(ExitCode::diverged,
                fmt::format("the probabilities of {} of {} texts are not finite: this model diverged, or its weights "
                            "are damaged; take another checkpoint",
                            unanswered, texts));
}

torch::Tensor pick_tokens_b(const torch::Tensor& all_logits_bv, const torch::Tensor& uniform_b,
                            const SamplingOptions& options, const torch::Tensor& never_n) {
  constexpr double impossible = -std::numeric_limits<double>::infinity();
  const auto logits_bv = never_n.defined() ? all_logits_bv.index_fill(1, never_n, impossible) : all_logits_bv;
  if (options.temperature == 0) return logits_bv.argmax(1);  // of equal logits the lowest id
  const auto [sorted_bv, token_bv] = logits_bv.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  const auto vocabulary = logits_bv.size(1) - (never_n.defined() ? never_n.size(0) : 0);
  const auto count = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
  const auto logit_bk = sorted_bv.narrow(1, 0, count).to(torch::kDouble);
  const auto sum_bk = ((logit_bk - logit_bk.narrow(1, 0, 1)) / options.temperature).exp().cumsum(1);
  // The place of the last token that may be picked, and the sum of the weights up to it.
  auto last_b1 = torch::full_like(token_bv.narrow(1, 0, 1), count - 1);
  auto total_b1 = sum_bk.narrow(1, count - 1, 1);
  if (options.top_p < 1) {
    last_b1 = (sum_bk < options.top_p * total_b1).sum(1, /*keepdim=*/true).clamp_max(count - 1);
    total_b1 = sum_bk.gather(1, last_b1);
  }
  // Sums that a device adds in parallel need not ascend to the last bit, so the place is bounded.
  const auto before_b1 = (sum_bk <= uniform_b.unsqueeze(1) * total_b1).sum(1, /*keepdim=*/true);
  return token_bv.gather(1, torch::minimum(before_b1, last_b1)).squeeze(1);
}

DeviceGenerator::DeviceGenerator(SequenceModel& model, ModelState& state, std::int64_t samples,
                                 const SamplingOptions& options, torch::Device device, DeviceGenerationPlan plan)
    : model_(model),
      state_(state_as<TransformerState>(state)),
      options_(options),
      samples_(samples),
      graphs_([this](std::int64_t bucket) { compute(bucket); }, model.context(), device, std::move(plan)) {
  state_.stay_in_place();
  const auto on_device = torch::TensorOptions().dtype(torch::kLong).device(device);
  newest_b1_ = torch::zeros({samples, 1}, on_device);
  place_1_ = torch::zeros({1}, on_device);
  draw_1_ = torch::zeros({1}, on_device);
  if (!options.never.empty()) never_n_ = torch::tensor(options.never, torch::kLong).to(device);
  uniform_tb_ = torch::zeros({graphs_.longest_chunk(), samples}, on_device.dtype(torch::kDouble));
  tokens_tb_ = torch::zeros({graphs_.longest_chunk(), samples}, on_device);
}

std::span<const std::int32_t> DeviceGenerator::next(std::span<const std::int32_t> newest_b, std::int64_t length,
                                                    std::uint64_t drawn) {
  if (read_ == ready_.size() && !graphs_.failed()) generate_chunk(newest_b, length, drawn);
  if (read_ == ready_.size()) return {};
  const auto count = static_cast<std::size_t>(samples_);
  return {ready_.data() + std::exchange(read_, read_ + count), count};
}

void DeviceGenerator::generate_chunk(std::span<const std::int32_t> newest_b, std::int64_t length, std::uint64_t drawn) {
  const auto count = graphs_.next_chunk(most_prompt_tokens(model_) - length + 1);
  const std::vector<std::int64_t> newest(newest_b.begin(), newest_b.end());
  newest_b1_.copy_(torch::tensor(at::ArrayRef<std::int64_t>(newest)).unsqueeze(1));
  place_1_.fill_(length - 1);
  uniform_tb_.narrow(0, 0, count).copy_(uniform_numbers_tb(count, drawn));
  draw_1_.zero_();
  const auto done = graphs_.run(length, count);
  const auto tokens_tb = tokens_tb_.narrow(0, 0, done).to(torch::kCPU, torch::kInt).contiguous();
  ready_.assign(tokens_tb.data_ptr<std::int32_t>(), tokens_tb.data_ptr<std::int32_t>() + tokens_tb.numel());
  read_ = 0;
}

torch::Tensor DeviceGenerator::uniform_numbers_tb(std::int64_t count, std::uint64_t drawn) const {
  auto uniform_tb = torch::empty({count, samples_}, torch::kDouble);
  auto* number = uniform_tb.data_ptr<double>();
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t sample = 0; sample < samples_; ++sample)
      *number++ = Rng(options_.seed, RandomPurpose::sampling, static_cast<std::uint64_t>(sample))
                      .uniform(drawn + static_cast<std::uint64_t>(t));
  return uniform_tb;
}

void DeviceGenerator::compute(std::int64_t bucket) {
  state_.read_at(place_1_, bucket);
  const auto logits_bv = model_.evaluate(Batch{.ids_bc = newest_b1_}, &state_).select(1, 0);
  const auto uniform_b = uniform_tb_.index_select(0, draw_1_).squeeze(0);
  const auto tokens_b = pick_tokens_b(logits_bv, uniform_b, options_, never_n_);
  tokens_tb_.index_copy_(0, draw_1_, tokens_b.unsqueeze(0));
  newest_b1_.copy_(tokens_b.unsqueeze(1));
  place_1_.add_(1);
  draw_1_.add_(1);
}

std::int32_t TokenPicker::pick(std::span<const double> logits, double uniform) {
  order_.clear();
  auto never = options_.never.begin();
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    const bool is_drawn = never == options_.never.end() || *never != id;
    is_drawn ? order_.push_back(id) : void(++never);
  }
  const auto logit_of = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit_of(a) > logit_of(b) || (logit_of(a) == logit_of(b) && a < b);
  };
  if (options_.temperature == 0) return *std::min_element(order_.begin(), order_.end(), likelier);
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order_.size()) {
    std::nth_element(order_.begin(), order_.begin() + options_.top_k, order_.end(), likelier);
    order_.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::sort(order_.begin(), order_.end(), likelier);
  weights_.clear();
  for (const auto id : order_)
    weights_.push_back(std::exp((logit_of(id) - logit_of(order_[0])) / options_.temperature));
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

std::string prompt_cut(const SequenceModel& model, std::size_t prompt_tokens) {
  const auto most = most_prompt_tokens(model);
  if (static_cast<std::int64_t>(prompt_tokens) <= most) return "";
  return fmt::format("the prompt has {} tokens; the model sees the last {} of them (model.context)", prompt_tokens,
                     most);
}

ContextWindow::ContextWindow(std::int64_t context, WindowKind kind, std::span<const std::int32_t> prompt)
    : context_(context), kind_(kind) {
  if (context < unlimited) tokens_.reserve(static_cast<std::size_t>(context) + 1);
  tokens_.assign(prompt.end() - std::min(std::ssize(prompt), context), prompt.end());
}

bool ContextWindow::push(std::int32_t token) {
  tokens_.push_back(token);
  if (std::ssize(tokens_) <= context_) return false;
  tokens_.erase(tokens_.begin(), tokens_.end() - tokens_kept(context_, kind_));
  return true;
}

TextGenerator::TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt,
                             const SamplingOptions& options, torch::Device device, std::int64_t samples,
                             DeviceGenerationPlan plan, std::shared_ptr<Decoder> decoder)
    : model_(model),
      options_(options),
      device_(device),
      parameters_(count_parameters(model).all),
      threads_(at::get_num_threads()),
      threads_now_(threads_),
      picker_(options) {
  for (std::int64_t sample = 0; sample < samples; ++sample)
    windows_.emplace_back(most_prompt_tokens(model), options.window, prompt);
  if (!options.cached) return;
  decoder_ = std::move(decoder);
  make_cache();
  if (auto planned = plan_with_graphs(std::move(plan), model, device); planned && options.graphs)
    on_device_ = std::make_unique<DeviceGenerator>(model, *state_, samples, options, device, *std::move(planned));
}

TextGenerator::~TextGenerator() { at::set_num_threads(threads_); }

// A small model processes a few tokens before a second thread has begun. If another program holds a core, waiting for
// that thread costs a hundred times the time that it saves.
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
  if (!decoder_) decoder_ = model_.decoder(samples);
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

bool TextGenerator::take_from_device() {
  if (on_device_ == nullptr || state_->length() == 0) return false;
  const auto tokens_b = on_device_->next(tokens_b_, std::ssize(windows_.front().tokens()), drawn_);
  if (tokens_b.empty()) {
    on_device_.reset();
    make_cache();
    return false;
  }
  tokens_b_.assign(tokens_b.begin(), tokens_b.end());
  return true;
}

void TextGenerator::pick_tokens() {
  if (!decoder_ || state_->length() == 0) {
    encode_windows();
  } else {
    set_threads(tokens_b_.size());
    const auto logits_bv = decoder_->step(tokens_b_);
    logits_bv_.assign(logits_bv.begin(), logits_bv.end());
  }
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
  if (!cut) return tokens_b_;
  // Every token has another position now, so the cache is no longer valid.
  fresh_ = static_cast<std::int64_t>(windows_.front().tokens().size());
  if (options_.window == WindowKind::slide) {
    on_device_.reset();  // the window moves for every further token
    decoder_.reset();
    state_.reset();
  } else if (state_) {
    state_->reset();
  }
  return tokens_b_;
}

std::string StopFilter::feed(const std::string& text) {
  held_ += text;
  std::size_t first_stop = std::string::npos, holds = 0;
  for (const auto& stop : stops_) {
    first_stop = std::min(first_stop, held_.find(stop));
    for (auto length = std::min(stop.size() - 1, held_.size()); length > holds; --length)
      if (held_.ends_with(stop.substr(0, length))) holds = length;
  }
  const bool stops = first_stop != std::string::npos;
  if (stops) stopped_ = true;
  auto shown = held_.substr(0, stops ? first_stop : held_.size() - holds);
  held_.erase(0, stops ? std::string::npos : shown.size());
  return shown;
}

std::string default_prompt(const Tokenizer& tokenizer) {
  try {
    if (!tokenizer.encode("\n").empty()) return "\n";
  } catch (const Error&) {  // it is not in the vocabulary
  }
  return tokenizer.decode(std::vector<std::int32_t>{0});
}

std::optional<Sample> write_sample(SequenceModel& model, const Tokenizer& tokenizer, torch::Device device,
                                   std::uint64_t seed, std::int64_t step) {
  constexpr std::int64_t length = 200;
  SamplingOptions options;
  options.graphs = false;  // they would take memory in addition to the training
  options.never = ids_without_token(tokenizer);
  constexpr int exact_in_json = 11;  // bits that are dropped, so that a JSON number holds the seed
  options.seed = Rng(seed, RandomPurpose::sampling, static_cast<std::uint64_t>(step)).bits(0) >> exact_in_json;
  const auto prompt = default_prompt(tokenizer);
  std::vector<std::int32_t> tokens;
  TextGenerator generator(model, tokenizer.encode(prompt), options, device);
  while (std::ssize(tokens) < length && stop_signal() == 0) tokens.push_back(generator.next().front());
  if (std::ssize(tokens) < length) return std::nullopt;
  return Sample{.prompt = prompt, .text = tokenizer.decode(tokens), .tokens = length, .options = options};
}

void log_sample(std::int64_t step, const std::string& text) {
  log::info("sample at step {}:", step);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::ranges::replace_if(
        line, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, ' ');
    log::info("  {}", line);
  }
}

}  // namespace metaformer
