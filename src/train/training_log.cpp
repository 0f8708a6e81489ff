#include "train/training_log.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace metaformer {

using namespace std::chrono_literals;

namespace {

constexpr auto line_interval = 5s;  // of lines of train.log

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

StepSums sums_of(const std::vector<StepResult>& results, double clip) {
  const auto on_host = [&](torch::Tensor StepResult::*field, torch::ScalarType type) {
    std::vector<torch::Tensor> scalars;
    for (const auto& result : results) scalars.push_back(result.*field);
    return torch::stack(scalars).to(torch::kCPU, type);
  };
  const bool has_scale = results.front().skipped.defined();
  const auto loss_n = on_host(&StepResult::loss, torch::kDouble);
  const auto norm_n = on_host(&StepResult::gradient_norm, results.front().gradient_norm.scalar_type());
  const auto clipped_n = norm_n > clip;
  const auto skipped_n = has_scale ? on_host(&StepResult::skipped, torch::kBool) : torch::zeros_like(clipped_n);
  StepSums sums;
  for (std::int64_t i = 0; i < std::ssize(results); ++i) {
    sums.last_was_skipped = skipped_n[i].item<bool>();
    if (sums.last_was_skipped) {
      ++sums.skipped_steps;
      continue;
    }
    ++sums.steps;
    sums.loss += loss_n[i].item<double>();
    if (clip > 0 && clipped_n[i].item<bool>()) ++sums.clipped_steps;
  }
  sums.exhausted = has_scale && on_host(&StepResult::exhausted, torch::kBool).any().item<bool>();
  sums.last_norm = norm_n[-1].item<double>();
  return sums;
}

void ProgressLine::add_losses(double sum, std::int64_t count) {
  constexpr double kept_per_step = 0.98;
  if (count == 0) return;
  const double kept = std::pow(kept_per_step, count);
  loss_sum_ = kept * loss_sum_ + (1 - kept) * sum / static_cast<double>(count);
  loss_weight_ = kept * loss_weight_ + (1 - kept);
}

void ProgressLine::add_evaluation(double seconds) {
  evaluation_seconds_ += seconds;
  ++evaluations_;
}

std::string ProgressLine::text(std::int64_t step, double learning_rate, double seconds_per_step) const {
  auto line = fmt::format("step {}/{}", step, config_.steps);
  if (loss_weight_ > 0) line += fmt::format("  loss {:.4f}", loss_sum_ / loss_weight_);
  line += fmt::format("  lr {:.2e}", learning_rate);
  if (skipped_steps_ > 0) line += fmt::format("  {} skipped", skipped_steps_);
  if (seconds_per_step <= 0) return line;
  const double per_evaluation = evaluations_ > 0 ? evaluation_seconds_ / static_cast<double>(evaluations_) : 0;
  const bool ends_with_another = step < config_.steps && config_.steps % config_.eval_interval != 0;
  const auto evaluations_left =
      config_.steps / config_.eval_interval - step / config_.eval_interval + (ends_with_another ? 1 : 0);
  const double left = seconds_per_step * static_cast<double>(config_.steps - step) +
                      per_evaluation * static_cast<double>(evaluations_left);
  return line +
         fmt::format("  {} tokens/s  ETA {}", human_count(tokens_per_step_ / seconds_per_step), human_duration(left));
}

void ProgressLine::show(std::int64_t step, double learning_rate, double seconds_per_step) {
  timer_.restart();
  show_progress(text(step, learning_rate, seconds_per_step));
  if (!log::stderr_is_terminal()) {
    recorded_step_ = step;
  } else if (record_timer_.has_run(line_interval)) {
    record(step, learning_rate, seconds_per_step);
  }
}

void ProgressLine::record(std::int64_t step, double learning_rate, double seconds_per_step) {
  if (loss_weight_ == 0 || step == recorded_step_) return;
  recorded_step_ = step;
  record_timer_.restart();
  log::record(text(step, learning_rate, seconds_per_step));
}

std::string describe_model(const ExperimentConfig& config) {
  const auto describe = [&](const auto& model) -> std::string {
    using Model = std::decay_t<decltype(model)>;
    if constexpr (std::same_as<Model, LinearConfig>) {
      return fmt::format("linear, 1- to {}-grams in {} buckets", model.ngrams, model.buckets);
    } else {
      const auto sizes = fmt::format("width {}, context {}", model.width, model.context);
      if constexpr (std::same_as<Model, FeedForwardModelConfig>) {
        return fmt::format("feed_forward, window {}, width {}, {} hidden units, context {}", model.window, model.width,
                           model.hidden, model.context);
      } else if constexpr (std::same_as<Model, TransformerConfig>) {
        if (model.layers == 0) return "no blocks, " + sizes;
        return fmt::format("mixer {}, {}, {}, {}", kind_of(model.mixer), counted(model.layers, "layer"),
                           counted(model.heads, "head"), sizes);
      } else if constexpr (std::same_as<Model, EncoderDecoderConfig>) {
        const auto blocks = model.encoder_blocks();
        return fmt::format("encoder of mixer {} and {}, decoder of {} and {} that sees it by {}, {}, {}",
                           kind_of(blocks.mixer), counted(blocks.layers, "layer"), kind_of(model.mixer),
                           counted(model.layers, "layer"), kind_of(model.cross_mixer), counted(model.heads, "head"),
                           sizes);
      } else {
        return fmt::format("{}, {}, {}{}", model.kind, counted(model.layers, "layer"), sizes,
                           model.carry_state ? ", the state is carried" : "");
      }
    }
  };
  return std::visit(describe, config.model);
}

}  // namespace metaformer
