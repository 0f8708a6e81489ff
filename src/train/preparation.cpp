#include "train/preparation.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "model/memory_estimate.h"
#include "ops/device.h"
#include "ops/linear.h"

namespace metaformer {

namespace {

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string describe_memory(const MemoryEstimate& estimate) {
  return fmt::format(
      "training takes about {} of memory ({} for weights, gradients and optimiser state, {} for "
      "activations), and {} are available; lower train.batch_size (and raise train.accumulate), "
      "model.context or model.width",
      human_bytes(estimate.total()), human_bytes(estimate.state()), human_bytes(estimate.activations),
      human_bytes(machine_memory()));
}

// What clearly cannot fit is not begun: it would keep the machine swapping until it is killed.
void refuse_what_cannot_fit(const MemoryEstimate& estimate) {
  if (clearly_exceeds(estimate, machine_memory()))
    throw Error(ExitCode::out_of_memory, describe_memory(estimate) + ", or train with --force");
}

void require_backend(const ExperimentConfig& config, torch::Device device) {
  const auto* model = blocks_of(config.model);
  if (model != nullptr && model->mixer->backend() == Backend::fused && device.is_cpu())
    throw Error(ExitCode::usage,
                "model.mixer.backend: 'fused' needs a CUDA device, and this runs on the CPU; set auto or composed");
}

std::string describe(const LinearConfig& model) {
  return fmt::format("linear, 1- to {}-grams in {} buckets", model.ngrams, model.buckets);
}

std::string describe(const RecurrentConfig& model, std::string_view kind) {
  return fmt::format("{}, {}, width {}, context {}{}", kind, counted(model.layers, "layer"), model.width, model.context,
                     model.carry_state ? ", the state is carried" : "");
}

std::string describe(const LstmConfig& model) { return describe(model, model.kind); }

std::string describe(const GruConfig& model) { return describe(model, model.kind); }

std::string describe(const FeedForwardModelConfig& model) {
  return fmt::format("feed_forward, window {}, width {}, {} hidden units, context {}", model.window, model.width,
                     model.hidden, model.context);
}

std::string describe(const TransformerConfig& model) {
  const auto sizes = fmt::format("width {}, context {}", model.width, model.context);
  if (model.layers == 0) return "no blocks, " + sizes;
  return fmt::format("mixer {}, {}, {}, {}", kind_of(model.mixer), counted(model.layers, "layer"),
                     counted(model.heads, "head"), sizes);
}

std::string describe(const EncoderDecoderConfig& model) {
  const auto blocks = model.encoder_blocks();
  return fmt::format("encoder of mixer {} and {}, decoder of {} and {} that sees it by {}, {}, width {}, context {}",
                     kind_of(blocks.mixer), counted(blocks.layers, "layer"), kind_of(model.mixer),
                     counted(model.layers, "layer"), kind_of(model.cross_mixer), counted(model.heads, "head"),
                     model.width, model.context);
}

}  // namespace

torch::Device prepare_device(const ExperimentConfig& config, const std::string& name, bool force) {
  const auto device = select_device(name);
  // Before the data are read: with the smallest vocabulary that they can have.
  if (device.is_cpu() && !force) refuse_what_cannot_fit(estimate_memory(config, {.vocabulary = 1, .classes = 2}));
  require_backend(config, device);
  require_right_products();
  if (device.is_cuda())
    at::globalContext().setFloat32MatmulPrecision(config.train.precision == Precision::tf32 ? "high" : "highest");
  return device;
}

void check_memory(const ExperimentConfig& config, const Codec& codec, torch::Device device, bool force) {
  if (!device.is_cpu()) return;
  const auto estimate = estimate_memory(config, {.vocabulary = codec.tokenizer->vocabulary_size(),
                                                 .classes = static_cast<std::int64_t>(codec.labels.size())});
  if (!force) refuse_what_cannot_fit(estimate);
  if (estimate.total() > machine_memory()) log::warning("{}", describe_memory(estimate));
}

std::string describe_model(const ExperimentConfig& config) {
  return std::visit([](const auto& model) { return describe(model); }, config.model);
}

}  // namespace metaformer
