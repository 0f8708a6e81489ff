// Parameters that do not change, and learning rates by depth and by name.

#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "support/failure.h"
#include "support/workplace.h"

namespace metaformer {

namespace {

const std::vector<std::string> optimisers = {"adamw", "adam", "sgd", "{kind: sgd, momentum: 0.9}", "muon"};

// A training with rates by layer, after `steps` steps from the same weights and batches.
struct Trained {
  Trained(const Workplace& place, const std::vector<std::string>& overrides, int steps = 1)
      : parts(place.experiment(overrides)) {
    before = parts.parameters->values().clone();
    for (int step = 0; step < steps; ++step) parts.run(step, 1e-2);
  }

  torch::Tensor update(const ParameterBuffer::View& view) const {
    return view.parameter.detach() - ParameterBuffer::part(before, view);
  }

  Parts parts;
  torch::Tensor before;
};

}  // namespace

TEST_CASE("learning rates fall from the head to the embeddings", "[rates]") {
  const Workplace place;
  const Trained trained(place, {"model.layers=3", "model.embedding.tie=false", "train.layer_rate_decay=0.5"}, 0);
  std::map<std::string, double> rates;
  for (const auto& view : trained.parts.parameters->views()) rates[view.name] = view.rate;
  CHECK(rates.at("head.weight") == 1);
  CHECK(rates.at("transformer.final_norm.weight") == 1);
  CHECK(rates.at("transformer.blocks.2.feed_forward.up.weight") == 0.5);
  CHECK(rates.at("transformer.blocks.1.mixer_norm.weight") == 0.25);
  CHECK(rates.at("transformer.blocks.0.feed_forward.down.weight") == 0.125);
  CHECK(rates.at("transformer.token_embedding.weight") == 0.0625);
  CHECK(rates.at("transformer.position_embedding.weight") == 0.0625);
}

TEST_CASE("layers of a recurrent model have depths, too", "[rates]") {
  const Workplace place;
  const Trained trained(place, {"model=lstm", "model.layers=2", "train.layer_rate_decay=0.5"}, 0);
  std::map<std::string, double> rates;
  for (const auto& view : trained.parts.parameters->views()) rates[view.name] = view.rate;
  CHECK(rates.at("lstm.weight_hh_l1") == 0.5);
  CHECK(rates.at("lstm.bias_ih_l0") == 0.25);
  CHECK(rates.at("token_embedding.weight") == 0.125);
}

TEST_CASE("factors of rates go to parameters by their names, and to parts of names in every block", "[rates]") {
  const Workplace place;
  const Trained trained(place,
                        {"model.mixer=metric", "model.embedding.tie=false", "train.layer_rate_decay=0.5",
                         "train.rate_factors=[mixer.projection=0.25, head.weight=3, "
                         "transformer.blocks.0.feed_forward=10, packed_metric=8]"},
                        0);
  std::map<std::string, double> rates;
  for (const auto& view : trained.parts.parameters->views()) rates[view.name] = view.rate;
  CHECK(rates.at("head.weight") == 3);
  CHECK(rates.at("transformer.final_norm.weight") == 1);
  CHECK(rates.at("transformer.blocks.1.mixer.projection.weight") == 0.125);
  CHECK(rates.at("transformer.blocks.1.mixer.packed_metric") == 4);
  CHECK(rates.at("transformer.blocks.1.mixer.output.weight") == 0.5);
  CHECK(rates.at("transformer.blocks.1.feed_forward.up.weight") == 0.5);
  CHECK(rates.at("transformer.blocks.0.mixer.projection.weight") == 0.0625);
  CHECK(rates.at("transformer.blocks.0.mixer.packed_metric") == 2);
  CHECK(rates.at("transformer.blocks.0.feed_forward.up.weight") == 2.5);
  CHECK(rates.at("transformer.blocks.0.feed_forward.down.weight") == 2.5);
}

TEST_CASE("a parameter that is frozen stays so, whatever its factor", "[rates]") {
  const Workplace place;
  const Trained trained(place, {"train.freeze=[transformer.blocks.0]", "train.rate_factors=[feed_forward=2]"}, 0);
  for (const auto& view : trained.parts.parameters->views()) {
    INFO(view.name);
    const bool freezes = view.name.starts_with("transformer.blocks.0.");
    CHECK(view.rate == (freezes ? 0 : view.name.find("feed_forward.") != std::string::npos ? 2 : 1));
  }
}

TEST_CASE("from zeros, a step with a factor that is a power of two is exactly that factor of the plain one",
          "[rates]") {
  const Workplace place;
  const std::string optimiser = GENERATE("sgd", "adagrad");
  const std::vector<std::string> common = {"model.mixer=metric", "train.optimizer=" + optimiser};
  auto slower = common;
  slower.emplace_back("train.rate_factors=[mixer.projection=0.25]");
  Trained plain(place, common, 0), factored(place, slower, 0);
  for (auto* trained : {&plain, &factored}) {
    const torch::NoGradGuard no_grad;
    trained->parts.parameters->values().zero_();
    trained->before.zero_();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    for (const auto& view : trained->parts.parameters->views()) view.parameter.mutable_grad().normal_(0, 1, generator);
    trained->parts.optimizer->step(0x1p-7);
  }
  const auto& views = plain.parts.parameters->views();
  for (std::size_t i = 0; i < views.size(); ++i) {
    INFO(views[i].name);
    const bool is_slower = views[i].name.find("mixer.projection") != std::string::npos;
    const auto update = factored.update(factored.parts.parameters->views()[i]);
    CHECK(torch::equal(update, (is_slower ? 0.25 : 1) * plain.update(views[i])));
    if (is_slower) CHECK(update.abs().max().item<double>() > 0);
  }
}

TEST_CASE("a factor of the rate is a factor of the first update, decay included", "[rates]") {
  const Workplace place;
  const std::string optimiser = GENERATE(from_range(optimisers));
  const bool as_tensor = GENERATE(false, true);
  INFO(optimiser << ", tensor " << as_tensor);
  const std::vector<std::string> common = {"train.optimizer=" + optimiser, "train.optimizer.weight_decay=0.3",
                                           "train.clip=0"};
  auto decayed = common;
  decayed.emplace_back("train.layer_rate_decay=0.5");
  decayed.emplace_back("train.rate_factors=[feed_forward.up=0.3, transformer.token_embedding=2]");
  const Trained plain(place, common, 0), layered(place, decayed, 0);
  for (const auto* trained : {&plain, &layered}) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    for (const auto& view : trained->parts.parameters->views()) view.parameter.mutable_grad().normal_(0, 1, generator);
    auto& optimizer = *trained->parts.optimizer;
    as_tensor ? optimizer.step(torch::tensor(1e-2F)) : optimizer.step(1e-2);
  }
  const auto& views = plain.parts.parameters->views();
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& view = layered.parts.parameters->views()[i];
    INFO(view.name);
    const auto expected = view.rate * plain.update(views[i]);
    // Updates are differences of values, each rounded to float32.
    const double rounding = 0x1p-23 * view.parameter.abs().max().item<double>();
    CHECK((layered.update(view) - expected).abs().max().item<double>() <=
          2 * rounding + 1e-5 * expected.abs().max().item<double>());
    CHECK(expected.abs().max().item<double>() > 0);
  }
}

TEST_CASE("frozen parameters keep every bit, and the others learn as if those were no parameters", "[rates]") {
  const Workplace place;
  const std::string optimiser = GENERATE(from_range(optimisers)), slices = GENERATE("1", "2");
  INFO(optimiser << ", slices " << slices);
  const Trained trained(
      place,
      {"train.optimizer=" + optimiser, "train.optimizer.weight_decay=0.1", "train.cpu_slices=" + slices,
       "train.freeze=[transformer.blocks.0, transformer.token_embedding]"},
      4);
  std::size_t frozen = 0;
  for (const auto& view : trained.parts.parameters->views()) {
    INFO(view.name);
    const bool freezes =
        view.name.starts_with("transformer.blocks.0.") || view.name.find("token_") != std::string::npos;
    CHECK((view.rate == 0) == freezes);
    CHECK(torch::equal(view.parameter.detach(), ParameterBuffer::part(trained.before, view)) == freezes);
    if (freezes) CHECK(view.parameter.grad().abs().max().item<double>() == 0);
    frozen += freezes ? 1 : 0;
  }
  CHECK(frozen > 4);
  for (const auto& [name, tensor] : trained.parts.optimizer->state())
    CHECK(name.find("blocks.0.") == std::string::npos);
}

TEST_CASE("what is frozen changes no gradient of the rest", "[rates]") {
  const Workplace place;
  const Trained whole(place, {"train.clip=0"}), part(place, {"train.clip=0", "train.freeze=[transformer.blocks.1]"});
  for (std::size_t i = 0; i < whole.parts.parameters->views().size(); ++i) {
    const auto& view = part.parts.parameters->views()[i];
    INFO(view.name);
    if (view.rate > 0) CHECK(torch::equal(view.parameter.grad(), whole.parts.parameters->views()[i].parameter.grad()));
  }
}

TEST_CASE("names that freeze nothing, or everything, are errors", "[rates]") {
  const Workplace place;
  const auto complaint = [&](const std::string& names) {
    return failure([&] { Trained(place, {"train.freeze=" + names}, 0); });
  };
  const auto [code, message] = complaint("[transformer.block.0]");
  CHECK(code == ExitCode::usage);
  CHECK(message.find("'transformer.block.0': no parameter") != std::string::npos);
  CHECK(message.find("did you mean 'transformer.blocks.0'?") != std::string::npos);
  CHECK(complaint("[transformer.blocks.00]").first == ExitCode::usage);
  CHECK(complaint("[transformer.bl]").first == ExitCode::usage);  // no beginning up to a dot
  CHECK(complaint("[transformer]").second.find("nothing to train") != std::string::npos);
  CHECK(complaint("[]").first == ExitCode::ok);
}

TEST_CASE("factors of no parameter, two of one, and what is no factor are errors", "[rates]") {
  const Workplace place;
  const auto complaint = [&](const std::string& entries) {
    return failure([&] { Trained(place, {"model.mixer=metric", "train.rate_factors=" + entries}, 0); });
  };
  const auto [code, message] = complaint("[mixer.projektion=0.1]");
  CHECK(code == ExitCode::usage);
  CHECK(message.find("train.rate_factors: 'mixer.projektion': no parameter has this name") != std::string::npos);
  CHECK(message.find("did you mean 'mixer.projection'?") != std::string::npos);
  CHECK(complaint("[mixer.proj=0.1]").first == ExitCode::usage);  // no part up to a dot
  CHECK(complaint("[blocks=0.1]").first == ExitCode::ok);
  const auto [twice, both] = complaint("[mixer.projection=0.1, transformer.blocks.0.mixer=2]");
  CHECK(twice == ExitCode::usage);
  CHECK(both.find("'mixer.projection' and 'transformer.blocks.0.mixer' are both names of the parameter "
                  "transformer.blocks.0.mixer.projection.weight") != std::string::npos);
  CHECK(complaint("[mixer=0.1, mixer=0.1]").first == ExitCode::usage);
  for (const std::string entry : {"mixer", "mixer=", "=2", "mixer=0", "mixer=-1", "mixer=inf", "mixer=nan",
                                  "mixer=1e400", "mixer=2x", "mixer= 2", "mixer=x"}) {
    const auto [kind, what] = complaint("['" + entry + "']");
    INFO(what);
    CHECK(kind == ExitCode::usage);
    CHECK(what.starts_with("--set train.rate_factors"));
    CHECK(what.find("train.rate_factors: '" + entry + "' is not PARAMETER=FACTOR") != std::string::npos);
  }
}

}  // namespace metaformer
