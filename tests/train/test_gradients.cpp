// The gradients of a step: with several batches, chunks of the loss, slices of a batch for threads, and frozen
// parameters.

#include <torch/nn/functional/loss.h>

#include <set>

#include "support/failure.h"
#include "support/threads.h"
#include "tasks/task_examples.h"

namespace metaformer::test_gradients {

namespace {

// The batches of a step with different numbers of targets.
struct UnevenStream : OneBatchStream {
  using OneBatchStream::OneBatchStream;
  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    auto batch = OneBatchStream::training_batch(step, micro, device);
    batch.targets_bc.narrow(1, 0, 1 + (step + 5 * micro) % 11).fill_(-1);
    batch.weight = (batch.targets_bc >= 0).sum().to(torch::kDouble);
    return batch;
  }
};

struct Computed {
  torch::Tensor loss, gradients;
};

Computed gradients_of(const Workplace& place, const Overrides& overrides) {
  Parts parts(place.experiment(overrides));
  for (const auto& view : parts.parameters->views())
    view.parameter.mutable_grad().fill_(5);  // left from the step before
  const auto loss = parts.compute_gradients(3);
  return {loss, parts.parameters->gradients().clone()};
}

const std::vector<std::pair<std::string, Overrides>> classifiers = {
    {"classifier", {"task.head=first_token", "data.packing=spfhp"}},
    {"reversible classifier", {"model.blocks=reversible", "model.feed_forward.chunks=2", "task.head=mean_pooled"}},
    {"n-grams", {"model.embedding.ngrams={order: 2, buckets: 50}", "task.head=per_token_mean"}},
    {"regions", {"model.embedding.region=sequence", "model.blocks=reversible"}},
    {"regions alone",
     {"model.embedding.region=sequence", "model.layers=0", "model.heads=4", "model.positions=none",
      "task.head={kind: max_pooled, bag: {kind: naive_bayes, buckets: 500}}"}},
};

// The gradients of a step of one model, with any parameters frozen.
struct Gradients {
  explicit Gradients(const Experiment& experiment) : parts(experiment) {}

  torch::Tensor where(const std::function<bool(const std::string& name)>& freezes) {
    parts.parameters->set_rates([&](const auto& view) { return freezes(view.name) ? 0.0 : 1.0; });
    parts.parameters->gradients().zero_();
    for (const auto& view : parts.parameters->views())
      if (view.gradient_rows != nullptr) view.gradient_rows->clear();
    parts.memory->reset();
    parts.compute_gradients(3);
    return parts.parameters->gradients().clone();
  }

  // Checks that frozen parameters have no gradient and change no byte of the other gradients.
  void check(const torch::Tensor& whole, const std::function<bool(const std::string& name)>& freezes) {
    const auto part = where(freezes);
    for (const auto& view : parts.parameters->views()) {
      INFO("gradient of " << view.name);
      const auto found = ParameterBuffer::part(part, view), expected = ParameterBuffer::part(whole, view);
      CHECK((freezes(view.name) ? found.abs().max().item<double>() == 0 : torch::equal(found, expected)));
    }
  }

  Parts parts;
};

// All beginnings of parameter names before a dot: layers and the modules that contain them.
std::set<std::string> groups_of(const ParameterBuffer& parameters) {
  std::set<std::string> groups;
  for (const auto& view : parameters.views())
    for (auto name = view.name; name.find('.') != std::string::npos;) {
      name = name.substr(0, name.rfind('.'));
      groups.insert(name);
    }
  return groups;
}

void check_every_freeze(const Experiment& experiment) {
  Gradients gradients(experiment);
  const auto whole = gradients.where([](const auto&) { return false; });
  const auto groups = groups_of(*gradients.parts.parameters);
  const auto is_in = [](const std::string& name, const std::string& group) { return name.starts_with(group + "."); };
  for (const auto& group : groups) {
    const auto& views = gradients.parts.parameters->views();
    const auto count = std::count_if(views.begin(), views.end(), [&](auto& view) { return is_in(view.name, group); });
    INFO("frozen: " << group);
    if (count < std::ssize(views)) gradients.check(whole, [&](const auto& name) { return is_in(name, group); });
  }
  for (const auto& view : gradients.parts.parameters->views()) {
    INFO("frozen: all but " << view.name);
    const bool matters = ParameterBuffer::part(whole, view).abs().max().item<double>() > 0;
    if (matters) gradients.check(whole, [&](const auto& name) { return name != view.name; });
  }
}

}  // namespace

TEST_CASE("a step of plain SGD subtracts the rate times the gradients", "[gradients]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0", "train.optimizer={kind: sgd, weight_decay: 0}"}));
  const auto before = parts.parameters->values().clone();
  parts.run(0, 0.25);
  CHECK(torch::allclose(parts.parameters->values(), before - 0.25 * parts.parameters->gradients(), 1e-6, 1e-8));
  CHECK_FALSE(torch::equal(parts.parameters->values(), before));
}

TEST_CASE("batches are weighted by their numbers of targets", "[gradients]") {
  const Workplace place;
  Parts parts(place.experiment({"train.accumulate=3", "train.clip=0"}));
  parts.task.batches = std::make_shared<UnevenStream>(parts.task.batches, 3);
  const auto batches = parts.batches(4);
  const auto loss = parts.compute_gradients(4, batches);
  const auto given = parts.parameters->gradients().clone();
  parts.parameters->gradients().zero_();
  Batch whole;
  std::vector<torch::Tensor> ids, targets;
  for (const auto& batch : batches) {
    ids.push_back(batch.ids_bc);
    targets.push_back(batch.targets_bc);
  }
  whole.ids_bc = torch::cat(ids);
  whole.targets_bc = torch::cat(targets);
  const auto logits_bcv = parts.model->evaluate(whole).flatten(0, 1);
  const auto mean = torch::nn::functional::cross_entropy(
      logits_bcv, whole.targets_bc.flatten(), torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1));
  mean.backward();
  CHECK(loss.item<double>() == Approx(mean.item<double>()).epsilon(1e-6));
  CHECK(torch::allclose(given, parts.parameters->gradients(), 1e-4, 1e-7));
}

TEST_CASE("chunks of the loss give the loss and the gradients of the whole batch", "[gradients][chunks]") {
  const Workplace place;
  const std::string tie = GENERATE("true", "false");
  const auto of_chunks = [&](const std::string& chunks) {
    Parts parts(place.experiment({"train.loss_chunks=" + chunks, "model.embedding.tie=" + tie, "model.dropout=0.1"}));
    parts.task.batches = std::make_shared<UnevenStream>(parts.task.batches, 1);
    const auto loss = parts.compute_gradients(4);
    return std::pair(loss.item<double>(), parts.parameters->gradients().clone());
  };
  const auto [loss, gradient] = of_chunks("1");
  for (const auto* chunks : {"2", "7", "5000"}) {
    const auto [chunked_loss, chunked_gradient] = of_chunks(chunks);
    CHECK(chunked_loss == Approx(loss).epsilon(1e-6));
    CHECK(torch::allclose(chunked_gradient, gradient, 1e-5, 1e-7));
  }
}

TEST_CASE("the gradient norm is that of all gradients, also with listed table rows, and clipping limits it",
          "[gradients]") {
  const Workplace place;
  const bool lists = GENERATE(false, true);
  const Overrides of_tables = {"model.layers=0", "model.heads=4", "model.positions=none",
                               "model.embedding.region=sequence",
                               "task.head={kind: max_pooled, bag: {kind: naive_bayes, buckets: 500}}"};
  Parts parts(place.experiment(joined(lists ? classifier(place, of_tables) : Overrides{}, {"train.clip=0.01"})));
  const auto& views = parts.parameters->views();
  for (const std::int64_t step : {0, 1}) {
    parts.compute_gradients(step);
    CHECK(std::count_if(views.begin(), views.end(), [](const auto& view) { return view.has_listed_rows(); }) ==
          (lists ? 3 : 0));
    const auto given = parts.parameters->gradients().clone();
    const auto norm = parts.run(step, 0).gradient_norm;
    CHECK(norm.item<double>() == Approx(given.norm().item<double>()).epsilon(1e-5));
    CHECK(norm.item<double>() > 0.01);
    CHECK(torch::allclose(parts.parameters->gradients(), given * (0.01 / norm), 1e-4, 1e-9));
  }
}

TEST_CASE("a divided step has the gradients of one batch, also with ragged and masked batches", "[gradients]") {
  const Workplace place;
  const auto [packs, of_task] = GENERATE(table<bool, Overrides>(
      {{false, {"task=language_model"}},
       {false, {"task=classification"}},
       {false, {"task=masked_language_model", "task.loss=token", "model.embedding.tie=true"}},
       {false, {"task=masked_language_model", "task.loss=sequence", "model.embedding.tie=false"}},
       {true, {"task=masked_language_model", "task.loss=token", "model.embedding.tie=false"}},
       {true, {"task=masked_language_model", "task.loss=sequence", "model.embedding.tie=true"}}}));
  const bool classifies = of_task[0] == "task=classification", masks = of_task.size() > 1;
  const auto common =
      joined(classifies ? classifier(place)
             : packs ? joined(of_task, {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"})
                     : of_task,
             {"train.clip=0", "train.batch_size=12"});
  std::vector<Overrides> divisions = {{"train.batch_size=3", "train.accumulate=4"}};
  if (masks)
    divisions.insert(divisions.end(),
                     {{"train.cpu_slices=5"},
                      {"train.loss_chunks=3"},
                      {"train.batch_size=6", "train.accumulate=2", "train.cpu_slices=6", "train.loss_chunks=2"}});
  for (const auto& division : divisions) {
    Parts whole(place.experiment(common)), divided(place.experiment(joined(common, division)));
    for (std::int64_t step = 0; step < 3; ++step) {
      const double rate = masks ? 0 : 1e-3;
      const auto expected = whole.run(step, rate), given = divided.run(step, rate);
      CHECK(given.loss.item<double>() == Approx(expected.loss.item<double>()).epsilon(classifies ? 1e-5 : 1e-6));
      CHECK(given.gradient_norm.item<double>() == Approx(expected.gradient_norm.item<double>()).epsilon(1e-5));
      CHECK(torch::allclose(divided.parameters->gradients(), whole.parameters->gradients(), 1e-4, masks ? 1e-6 : 1e-7));
    }
  }
}

TEST_CASE("slices of a batch have the batch's gradients, and dropout drops the same entries", "[slices]") {
  const auto overrides = GENERATE(values<Overrides>({{"model.mixer=metric"},
                                                     {"model.mixer=scaled_dot_product"},
                                                     {"model.mixer=quadratic", "train.accumulate=3"},
                                                     {"model.mixer=average_pooling"},
                                                     {"model.mixer=identity", "model.embedding.tie=false"},
                                                     {"model.mixer=none"},  // its norms do not affect the loss
                                                     {"model.positions=t5"},
                                                     {"model.positions=sinusoidal"},
                                                     {"model.positions=rotary", "model.norm=rms_norm"},
                                                     {"model={kind: lstm, width: 16}", "train.accumulate=2"},
                                                     {"model={kind: lstm, width: 16, carry_state: true}"},
                                                     {"model={kind: gru, width: 16, carry_state: true}"},
                                                     {"model={kind: feed_forward, window: 4, width: 8, hidden: 16}"},
                                                     {"model.dropout=0.5", "model.mixer=metric"},
                                                     {"model.dropout=0.5", "model.mixer=scaled_dot_product"},
                                                     {"model.dropout=0.5", "model.mixer=quadratic"},
                                                     {"model.dropout=0.5", "model.mixer=average_pooling"}}));
  const Workplace place;
  const auto whole = gradients_of(place, overrides);
  std::vector<Overrides> divisions = {{"train.cpu_slices=2"},  // a batch has six rows
                                      {"train.cpu_slices=3"},
                                      {"train.cpu_slices=4"},
                                      {"train.cpu_slices=6"},
                                      {"train.cpu_slices=100"}};
  if (overrides[0] == "model.dropout=0.5") divisions.push_back({"train.batch_size=3", "train.accumulate=2"});
  for (const auto& division : divisions) {
    const auto cut = gradients_of(place, joined(overrides, division));
    CHECK(cut.loss.item<double>() == Approx(whole.loss.item<double>()).epsilon(1e-6));
    CHECK(torch::allclose(cut.gradients, whole.gradients, 1e-4, 1e-6));
  }
}

TEST_CASE("training with slices gives the same bytes with any number of threads", "[slices]") {
  // The table of an encoder and decoder gets three gradients, of the source, the target and the head, and any thread
  // may be the first to cast it.
  const Overrides translator = {"task=sequence_to_sequence",
                                "data.synthetic=copy",
                                "model=encoder_decoder",
                                "model.layers=1",
                                "model.heads=2",
                                "model.width=32",
                                "train.precision=bf16",
                                "train.batch_size=16",
                                "train.cpu_slices=8"};
  const auto overrides =
      GENERATE_COPY(values<Overrides>({{"train.precision=fp32"},
                                       {"train.precision=bf16"},
                                       {"train.precision=fp16"},
                                       {"model={kind: lstm, width: 16, carry_state: true}"},
                                       {"model={kind: gru, width: 16, embedding: {tie: false}}"},
                                       {"model={kind: feed_forward, window: 4, width: 8, hidden: 16}"},
                                       translator}));
  const Workplace place;
  const auto experiment =
      overrides == translator
          ? default_experiment(overrides)
          : place.experiment(joined(overrides, {"train.cpu_slices=3", "model.dropout=0.2", "train.accumulate=2"}));
  const auto weights_with = [&](int threads) {
    const Threads scope(threads);
    Parts parts(experiment);
    for (std::int64_t step = 0; step < 4; ++step) parts.run(step, 1e-2);
    return parts.parameters->values().clone();
  };
  const auto weights = weights_with(1);
  for (const int threads : {2, 3, 4, 8}) CHECK(torch::equal(weights_with(threads), weights));
}

TEST_CASE("an overflow in a slice skips the whole step", "[slices]") {
  const Workplace place;
  Parts parts(place.experiment({"train.cpu_slices=2", "train.precision=fp16"}));
  parts.loss_scale->factor().fill_(1e38);  // overflows float16
  const auto result = parts.run(0, 1e-3);
  CHECK(result.skipped.item<bool>());
}

TEST_CASE("frozen parameters have no gradient and change no other gradient, in every kind of model", "[frozen]") {
  const Workplace place;
  const std::string slices = GENERATE("1", "2");
  std::vector<std::pair<std::string, Overrides>> models = language_models;
  for (const auto& [name, overrides] : classifiers)
    if (slices == "1" || name.find("region") == std::string::npos)  // slices do not support tables of regions
      models.emplace_back(name, classifier(place, joined({"data.cache=false"}, overrides)));
  models.emplace_back("pairs", pairs(place));
  models.emplace_back("pairs in chunks", pairs(place, {"model.feed_forward.chunks=2", "train.loss_chunks=2"}));
  for (const auto& [name, overrides] : models) {
    INFO(name << ", slices " << slices);
    check_every_freeze(place.experiment(joined(overrides, {"train.cpu_slices=" + slices})));
  }
}

TEST_CASE("a training of parameters that the loss does not depend on is an error", "[frozen]") {
  const Workplace place;
  const std::string frozen =
      "train.freeze=[transformer.token_embedding, transformer.position_embedding, transformer.blocks.0.feed_forward, "
      "transformer.blocks.1, transformer.blocks.0.feed_forward_norm, transformer.final_norm]";
  CHECK_THAT(message_of(ExitCode::usage,
                        [&] {
                          place.train("run", {"model.mixer=none", frozen});
                        }),
             ContainsSubstring("train.freeze: "));
}

}  // namespace metaformer::test_gradients
