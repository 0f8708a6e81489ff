#include <cmath>

#include "attention/mixer.h"
#include "attention/mixers.h"
#include "config/mixer_config.h"
#include "support/any_mixer.h"
#include "support/workplace.h"
#include "tasks/evaluation.h"
#include "train/diagnostics.h"
#include "train/step_profiler.h"

namespace metaformer {

TEST_CASE("diagnostics of a score form are those of the dense matrix", "[diagnostics]") {
  torch::manual_seed(0);
  const auto left = torch::randn({3, 4, 10}, torch::kDouble), right = torch::randn({3, 4, 10}, torch::kDouble);
  const auto result = diagnose_form({left, right});
  double asymmetry = 0, rank = 0;
  auto spectrum = torch::zeros({4}, torch::kDouble);
  for (int head = 0; head < 3; ++head) {
    const auto form = torch::matmul(left[head].t(), right[head]);
    asymmetry += ((form - form.t()).norm() / (2 * form.norm())).item<double>() / 3;
    const auto values = torch::linalg_svdvals(form).narrow(0, 0, 4);
    const auto share = values / values.sum();
    rank += std::exp(-(share * share.log()).sum().item<double>()) / 3;
    spectrum += values / 3;
  }
  CHECK(result.asymmetry == Approx(asymmetry));
  CHECK(result.effective_rank == Approx(rank));
  REQUIRE(result.spectrum.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(result.spectrum[static_cast<std::size_t>(i)] == Approx(spectrum[i].item<double>()));
}

TEST_CASE("asymmetry is 0 for symmetric and 1 for antisymmetric forms", "[diagnostics]") {
  const auto factor = torch::randn({1, 3, 5}, torch::kDouble);
  CHECK(diagnose_form({factor, factor}).asymmetry < 1e-7);
  const auto turn = torch::tensor({0., 1., -1., 0.}, torch::kDouble).view({1, 2, 2});
  const auto plane = torch::randn({1, 2, 6}, torch::kDouble);
  CHECK(diagnose_form({plane, torch::matmul(turn, plane)}).asymmetry == Approx(1));
}

TEST_CASE("every mixer with one score form gives it, and only metrics are symmetric", "[diagnostics]") {
  const auto options = any_mixer();
  torch::manual_seed(1);
  const MixerShape shape{.width = 12, .heads = 3};
  const auto mixer = make_mixer(options, shape);
  mixer->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.5);
  const auto form = mixer->score_form();
  const auto* as_metric = std::get_if<MetricOptions>(&options);
  const bool published = as_metric != nullptr && as_metric->score == MetricScore::as_published;
  const auto* sdp = std::get_if<ScaledDotProductOptions>(&options);
  const auto* quadratic = std::get_if<QuadraticOptions>(&options);
  const bool normalised =
      (sdp && sdp->qk_norm) || (quadratic && quadratic->qk_norm) || (as_metric && as_metric->qk_norm);
  const bool scores = has_scores(options) && !published && !normalised;
  REQUIRE(form.has_value() == scores);
  if (!form) return;
  CHECK(form->left_nrd.size(0) == 3);
  CHECK(form->left_nrd.size(2) == 12);
  CHECK((diagnose_form(*form).asymmetry < 1e-6) == (as_metric != nullptr));
}

TEST_CASE("norms by block add up to the whole, and the update is what the step changed", "[diagnostics]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0.05", "model.mixer=metric"}));
  parts.run(0, 1e-3);
  const auto before = parts.parameters->values().clone();
  const auto result = parts.run(1, 1e-2);
  const double norm = result.gradient_norm.item<double>();
  REQUIRE(norm > 0.05);  // clipped
  const auto diagnosed = diagnose_step(*parts.model, *parts.parameters, before, norm);
  double squared = 0;
  for (const auto& [name, group] : diagnosed.items()) squared += std::pow(group.at("gradient_norm").get<double>(), 2);
  CHECK(std::sqrt(squared) == Approx(norm).epsilon(1e-5));
  CHECK(diagnosed.contains("block_0"));
  CHECK(diagnosed.contains("block_1"));
  CHECK(diagnosed.contains("token_embedding"));
  double change = 0, size = 0;
  for (const auto& view : parts.parameters->views()) {
    if (view.name.find("blocks.1.") == std::string::npos) continue;
    const auto earlier = ParameterBuffer::part(before, view);
    change += (view.parameter - earlier).square().sum().item<double>();
    size += earlier.square().sum().item<double>();
  }
  CHECK(diagnosed["block_1"]["update_ratio"].get<double>() == Approx(std::sqrt(change / size)).epsilon(1e-4));
  CHECK(diagnosed["block_1"]["score_asymmetry"].get<double>() < 1e-3);
  CHECK(diagnosed["block_1"]["score_spectrum"].size() == 8);
}

TEST_CASE("the blocks of an encoder and decoder are told apart, and what sees the source from the rest",
          "[diagnostics]") {
  Parts parts(default_experiment({"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder",
                                  "model.layers=1", "model.encoder.layers=2", "model.heads=2", "model.width=16",
                                  "model.context=12", "model.positions=sinusoidal", "model.mixer=metric",
                                  "model.cross_mixer=quadratic", "model.encoder.mixer=quadratic"}));
  parts.run(0, 1e-3);
  const auto before = parts.parameters->values().clone();
  const auto result = parts.run(1, 1e-2);
  const auto diagnosed = diagnose_step(*parts.model, *parts.parameters, before, result.gradient_norm.item<double>());
  std::vector<std::string> names;
  for (const auto& [name, group] : diagnosed.items()) {
    names.push_back(name);
    CHECK(group.at("gradient_norm").get<double>() > 0);
    CHECK(group.at("update_ratio").get<double>() > 0);
  }
  CHECK(names == std::vector<std::string>{"token_embedding", "block_0", "final_norm", "encoder_block_0",
                                          "encoder_block_1", "encoder_final_norm"});
  CHECK(diagnosed["block_0"]["score_asymmetry"].get<double>() < 1e-3);  // metric
  CHECK(diagnosed["block_0"]["cross_score_asymmetry"].get<double>() > 0.3);
  CHECK(diagnosed["encoder_block_1"]["score_asymmetry"].get<double>() > 0.3);
}

TEST_CASE("diagnostics are written at their interval and change no training", "[diagnostics]") {
  const Workplace place;
  place.train("plain", {});
  place.train("watched", {"train.diagnostics_interval=5"});
  CHECK(model_bytes(place / "plain") == model_bytes(place / "watched"));
  std::istringstream lines(read_text(place / "watched/metrics.jsonl"));
  std::vector<int> steps;
  for (std::string line; std::getline(lines, line);)
    if (const auto json = nlohmann::json::parse(line); json["split"] == "diagnostics") {
      steps.push_back(json["step"].get<int>());
      CHECK(json["block_0"]["update_ratio"].get<double>() > 0);
    }
  CHECK(steps == std::vector<int>{5, 10});
}

TEST_CASE("a profile accounts for the time of the recorded steps", "[profile]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  StepProfiler profiler(place / "profile.json", torch::kCPU);
  double recorded_ms = 0;
  for (std::int64_t step = 0; step < 31; ++step) {
    profiler.before_step(step);
    const auto start = std::chrono::steady_clock::now();
    parts.run(step, 1e-3);
    profiler.after_step();
    const auto ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (step >= 10 && step < 30) recorded_ms += ms;
    evaluate_split({parts.predictor(), parts.task}, Split::validation);  // does not count
  }
  profiler.finish();
  double self_ms = 0;
  std::int64_t updates = 0;
  for (const auto& entry : profiler.operators()) {
    CHECK(entry.self_ms >= 0);
    self_ms += entry.self_ms;
    if (entry.name == "aten::_fused_adamw_") updates = entry.calls;
  }
  CHECK(updates == 40);  // matrices and vectors, 20 steps
  CHECK(self_ms <= recorded_ms);
  CHECK(self_ms >= 0.2 * recorded_ms);
  CHECK(nlohmann::json::parse(read_text(place / "profile.json")).contains("traceEvents"));
}

}  // namespace metaformer
