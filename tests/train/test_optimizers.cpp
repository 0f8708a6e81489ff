// Every optimiser, compared with its formula in float64 for every tensor, and the average of weights.

#include <algorithm>
#include <cmath>
#include <map>

#include "config/loader.h"
#include "ops/linear.h"
#include "run/safetensors.h"
#include "tasks/task_examples.h"
#include "train/optim/optimizer.h"

namespace metaformer::test_optimizers {

namespace {

// Parameters of every sort.
struct Sorts : Layer {
  Sorts() {
    const auto add = [&](const char* name, at::IntArrayRef shape, Decay decay, std::int64_t hidden_matrices) {
      add_parameter(name, torch::randn(shape), {.init = {}, .decay = decay, .hidden_matrices = hidden_matrices});
    };
    add("table", {5, 3}, Decay::embeddings, 0);
    add("packed", {6, 4}, Decay::matrices, 2);
    add("head", {2, 4}, Decay::matrices, 0);
    add("wide", {3, 7}, Decay::matrices, 1);
    add("tall", {7, 3}, Decay::matrices, 1);
    add("forms", {2, 4, 4}, Decay::matrices, 2);
    add("bias", {5}, Decay::none, 0);
  }
};

// A table with listed gradient rows, and a bias.
struct TableSetup : Layer {
  TableSetup() {
    add_parameter("table", torch::randn({20, 33}), {.decay = Decay::embeddings, .gradient_rows = &rows});
    add_parameter("bias", torch::randn({5}), {});
  }
  GradientRows rows{20};
};

// One parameter in float64.
struct Reference {
  torch::Tensor value, first, second;
  double decay = 0;  // the weight decay of its sort
  std::int64_t hidden_matrices = 0;
};

// The iterations as Jordan et al. write them.
torch::Tensor newton_schulz(const torch::Tensor& matrix, std::int64_t iterations) {
  auto x = matrix / matrix.norm();
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto gram = x.mm(x.t());
    x = 3.4445 * x - 4.7750 * gram.mm(x) + 2.0315 * gram.mm(gram).mm(x);
  }
  return x;
}

void adam_step(Reference& p, const torch::Tensor& gradient, const MomentsConfig& config, double rate, int t) {
  const auto [one, two] = config.betas;
  p.first = one * p.first + (1 - one) * gradient;
  p.second = two * p.second + (1 - two) * gradient.square();
  p.value -= rate * (p.first / (1 - std::pow(one, t))) / ((p.second / (1 - std::pow(two, t))).sqrt() + config.epsilon);
}

void step(Reference& p, const torch::Tensor& gradient, const AdamWConfig& config, double rate, int t) {
  p.value *= 1 - rate * p.decay;
  adam_step(p, gradient, config, rate, t);
}

void step(Reference& p, const torch::Tensor& gradient, const AdamConfig& config, double rate, int t) {
  adam_step(p, gradient + p.decay * p.value, config, rate, t);
}

void step(Reference& p, const torch::Tensor& gradient, const SgdConfig& config, double rate, int) {
  p.first = config.momentum * p.first + gradient + p.decay * p.value;
  p.value -= rate * p.first;
}

void step(Reference& p, const torch::Tensor& gradient, const AdagradConfig& config, double rate, int) {
  const auto decayed = gradient + p.decay * p.value;
  p.second += decayed.square();
  p.value -= rate * decayed / (p.second.sqrt() + config.epsilon);
}

void step(Reference& p, const torch::Tensor& gradient, const MuonConfig& config, double rate, int t) {
  if (p.hidden_matrices == 0) {
    p.value *= 1 - rate * p.decay;
    return adam_step(p, gradient, config, rate, t);
  }
  const double mu = config.momentum;
  p.first = mu * p.first + (1 - mu) * gradient;
  const auto ahead = mu * p.first + (1 - mu) * gradient;
  p.value *= 1 - rate * p.decay;
  const auto rows = p.value.flatten(0, -2).size(0) / p.hidden_matrices;
  const auto value = p.value.flatten(0, -2), direction = ahead.flatten(0, -2);
  for (std::int64_t i = 0; i < p.hidden_matrices; ++i) {
    const auto part = direction.narrow(0, i * rows, rows);
    const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, part.size(1))));
    value.narrow(0, i * rows, rows) -= rate * scale * newton_schulz(part, config.iterations);
  }
}

template <class Config>
std::map<std::string, Reference> references(const ParameterBuffer& parameters, const Config& config) {
  std::map<std::string, Reference> all;
  for (const auto& view : parameters.views()) {
    const auto value = view.parameter.detach().to(torch::kDouble, false, /*copy=*/true);
    const double decay = view.decay == Decay::none         ? 0
                         : view.decay == Decay::embeddings ? config.embedding_weight_decay.value_or(config.weight_decay)
                                                           : config.weight_decay;
    all[view.name] = {value, torch::zeros_like(value), torch::zeros_like(value), decay, view.hidden_matrices};
  }
  return all;
}

// A config with one of all optimisers, some with several options; the test case runs once with each.
TrainConfig any_config() {
  const std::string optimizer =
      GENERATE("adamw", "{kind: adamw, embedding_weight_decay: 0.5, betas: [0.8, 0.95], epsilon: 1e-3}", "adam",
               "{kind: adam, weight_decay: 0.2}", "sgd", "{kind: sgd, momentum: 0.9, weight_decay: 0.1}",
               "{kind: sgd, momentum: 0.9, weight_decay: 0.1, embedding_weight_decay: 0}", "muon",
               "{kind: muon, momentum: 0.8, iterations: 3, weight_decay: 0, embedding_weight_decay: 0.3}", "adagrad",
               "{kind: adagrad, epsilon: 1e-2, weight_decay: 0.1, embedding_weight_decay: 0}");
  return default_experiment({"train.optimizer=" + optimizer}).config.train;
}

std::map<std::string, torch::Tensor> tensors(const std::filesystem::path& run, int step, const std::string& file) {
  const auto path = run / "checkpoints" / ("step-" + std::to_string(step)) / (file + ".safetensors");
  const auto named = from_safetensors(read_text(path), path.string());
  return {named.begin(), named.end()};
}

}  // namespace

TEST_CASE("every optimiser follows its formula, also with a rate on the device, and continues from its saved state",
          "[optimizer]") {
  torch::manual_seed(0);
  const auto config = any_config();
  const bool rate_on_device = GENERATE(false, true);
  Sorts layer;
  ParameterBuffer parameters(layer);
  auto optimizer = make_optimizer(parameters, config);
  std::visit(
      [&](const auto& options) {
        auto all = references(parameters, options);
        for (int t = 1; t <= 6; ++t) {
          const double rate = 0.1 / t;
          parameters.gradients().normal_();
          for (const auto& view : parameters.views())
            step(all[view.name], view.parameter.grad().to(torch::kDouble), options, rate, t);
          rate_on_device ? optimizer->step(torch::tensor(rate, torch::kFloat)) : optimizer->step(rate);
          INFO(options.kind << " step " << t);
          for (const auto& view : parameters.views()) {
            INFO(view.name);
            CHECK(torch::allclose(view.parameter.detach().to(torch::kDouble), all[view.name].value, 1e-5, 2e-6));
          }
          if (t != 3) continue;
          const auto saved = from_safetensors(to_safetensors(optimizer->state()), "t");
          optimizer = make_optimizer(parameters, config);
          copy_by_name(saved, optimizer->state(), "t");
        }
      },
      config.optimizer);
}

TEST_CASE("tables with listed gradient rows are updated like whole tables", "[optimizer]") {
  torch::manual_seed(0);
  const auto config = any_config();
  INFO(kind_of(config.optimizer));
  TableSetup listed_tables, whole_tables;
  ParameterBuffer listed(listed_tables), whole(whole_tables);
  whole.values().copy_(listed.values());
  const auto listed_optimizer = make_optimizer(listed, config), whole_optimizer = make_optimizer(whole, config);
  for (int t = 0; t < 4; ++t) {
    listed.clear_gradients();
    whole.clear_gradients();
    whole_tables.rows.add_all();
    for (const std::int64_t row : {t, 9, 4 * t + 1}) {
      listed_tables.rows.add(row);
      const auto gradient_d = torch::randn({33});
      for (auto* parameters : {&listed, &whole}) parameters->views()[0].parameter.grad()[row].copy_(gradient_d);
    }
    const auto gradient_o = torch::randn({5});
    for (auto* parameters : {&listed, &whole}) parameters->views()[1].parameter.grad().copy_(gradient_o);
    REQUIRE(listed.views()[0].has_listed_rows());
    REQUIRE_FALSE(whole.views()[0].has_listed_rows());
    listed_optimizer->step(0.1);
    whole_optimizer->step(0.1);
    CHECK(torch::allclose(listed.values(), whole.values(), 1e-6, 1e-7));
  }
  const auto of_listed = listed_optimizer->state(), of_whole = whole_optimizer->state();
  for (std::size_t i = 0; i < of_whole.size(); ++i)
    CHECK(torch::allclose(of_listed[i].second, of_whole[i].second, 1e-6, 1e-7));
}

TEST_CASE("gradients of a scaled loss give the same update, and gradients that overflow give none",
          "[optimizer][fp16]") {
  torch::manual_seed(0);
  const auto config = any_config();
  INFO(kind_of(config.optimizer));
  Sorts layer, same_layer;
  ParameterBuffer plain(layer), scaled(same_layer);
  scaled.values().copy_(plain.values());
  const GradientScale scale{torch::tensor(1024.F), torch::tensor(0.F)};
  const auto plain_optimizer = make_optimizer(plain, config), scaled_optimizer = make_optimizer(scaled, config, scale);
  for (int t = 1; t <= 4; ++t) {
    plain.gradients().normal_();
    scaled.gradients().copy_(plain.gradients() * 1024);
    plain_optimizer->step(0.1);
    scaled_optimizer->step(0.1);
    CHECK(torch::allclose(scaled.values(), plain.values(), 1e-6, 1e-7));
    const auto before = scaled.values().clone();
    const auto state = from_safetensors(to_safetensors(scaled_optimizer->state()), "t");
    scaled.gradients().fill_(std::numeric_limits<float>::infinity());
    scale.found_inf->fill_(1);
    scaled_optimizer->step(0.1);
    scale.found_inf->fill_(0);
    CHECK(torch::equal(scaled.values(), before));
    const auto after = scaled_optimizer->state();
    for (std::size_t i = 0; i < state.size(); ++i) {
      INFO(after[i].first);
      CHECK(torch::equal(after[i].second, state[i].second));
    }
  }
}

TEST_CASE("after a reset an optimiser repeats its first update, and it names a state that is not finite",
          "[optimizer]") {
  torch::manual_seed(0);
  const auto config = any_config();
  INFO(kind_of(config.optimizer));
  Sorts layer;
  ParameterBuffer parameters(layer);
  const auto optimizer = make_optimizer(parameters, config);
  const auto first = parameters.values().clone();
  parameters.gradients().normal_();
  optimizer->step(0.1);
  const auto once = parameters.values().clone();
  CHECK_FALSE(torch::equal(once, first));
  optimizer->step(0.1);
  optimizer->reset();
  parameters.values().copy_(first);
  optimizer->step(0.1);
  CHECK(torch::equal(parameters.values(), once));
  CHECK(optimizer->first_not_finite().empty());
  const auto state = optimizer->state();
  if (state.empty()) return;  // plain SGD
  state.front().second.flatten()[0].fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(optimizer->first_not_finite() == state.front().first);
}

TEST_CASE("Newton-Schulz iterations agree with those in float64", "[optimizer]") {
  torch::manual_seed(0);
  const auto [rows, columns] = GENERATE(table<std::int64_t, std::int64_t>({{32, 32}, {32, 48}, {32, 128}, {128, 32}}));
  const std::int64_t iterations = GENERATE(1, 2, 5);
  const bool low_rank = GENERATE(false, true);
  INFO(rows << " x " << columns << ", " << iterations << " iterations" << (low_rank ? ", nearly of rank 2" : ""));
  auto x_mrc = torch::randn({3, rows, columns});
  if (low_rank) x_mrc = torch::bmm(torch::randn({3, rows, 2}), torch::randn({3, 2, columns})) + 1e-3 * x_mrc;
  std::vector<torch::Tensor> factors;  // one matrix at a time in float64
  for (const auto& matrix : x_mrc.unbind()) factors.push_back(newton_schulz(matrix.to(torch::kDouble), iterations));
  const auto expected = torch::stack(factors);
  const auto given = orthogonalise(x_mrc, iterations, torch::kFloat).to(torch::kDouble);
  // Wide matrices are computed with their Gram matrix, which squares the condition number of 1,000 and more.
  const bool loses_digits = low_rank && std::max(rows, columns) >= 2 * std::min(rows, columns);
  CHECK(((given - expected).norm() / expected.norm()).item<double>() < (loses_digits ? 1e-3 : 1e-4));
  if (low_rank) return;  // its small singular values are below the resolution of bfloat16
  const auto coarse = orthogonalise(x_mrc, iterations, torch::kBFloat16).to(torch::kDouble);
  CHECK(((coarse - expected).norm() / expected.norm()).item<double>() < 0.03);
}

TEST_CASE("five iterations bring singular values near 1, and a matrix of zeros stays 0", "[optimizer]") {
  torch::manual_seed(0);
  const auto near = torch::linalg_svdvals(orthogonalise(torch::randn({4, 24, 96}), 5, torch::kFloat));
  CHECK(near.min().item<double>() > 0.65);
  CHECK(near.max().item<double>() < 1.25);
  CHECK(torch::equal(orthogonalise(torch::zeros({1, 3, 3}), 5, torch::kFloat), torch::zeros({1, 3, 3})));
}

TEST_CASE("checkpoints have the average, which is evaluated, and the weights of a training without averaging",
          "[average]") {
  const Workplace place;
  const Overrides plain = {"train.checkpoint_interval=1", "train.keep_checkpoints=12", "train.learning_rate=0.01"};
  const auto summary = place.train("averaged", joined(plain, {"train.weight_average.decay=0.8"}));
  CHECK(place.train("plain", plain)["val_loss"] != summary["val_loss"]);
  std::map<std::string, torch::Tensor> sums;
  for (int step = 1; step <= 12; ++step) {
    const auto average = tensors(place / "averaged", step, "model"), state = tensors(place / "averaged", step, "state");
    for (const auto& [name, weight] : tensors(place / "plain", step, "model")) {
      INFO("step " << step << ", " << name);
      CHECK(torch::equal(state.at("trained." + name), weight));
      auto& sum = sums[name];
      sum = 0.2 * weight.to(torch::kDouble) + (sum.defined() ? 0.8 * sum : torch::zeros_like(weight, torch::kDouble));
      CHECK(torch::allclose(average.at(name).to(torch::kDouble), sum / (1 - std::pow(0.8, step)), 1e-5, 1e-6));
    }
  }
  const auto run = load_run(place / "averaged", "last", "cpu");
  const auto task = make_task(run.experiment.config, true);
  CHECK(evaluate_split({*run.predictor, task}, Split::validation).at("loss") == summary["val_loss"]);
}

TEST_CASE("a recalibrated classifier shifts the logits of its average", "[average][classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=8", "train.eval_interval=4", "task.head.recalibrate=true",
                                        "train.learning_rate=0.01", "train.weight_average.decay=0.8"}));
  const auto run = load_run(place / "run", "last", "cpu");
  auto shift = run.model->named_buffers()["logit_shift"];
  const auto saved = shift.clone();
  CHECK(saved.abs().sum().item<double>() > 0);
  shift.zero_();
  make_task(run.experiment.config, true).before_evaluation(*run.model, torch::kCPU);
  CHECK(torch::allclose(shift, saved, 1e-5, 1e-7));
}

TEST_CASE("the average of weights agrees with float64, and after its use the trained weights are restored",
          "[average]") {
  torch::manual_seed(0);
  const double decay = GENERATE(0.5, 0.999);
  Linear layer(7, 5, /*bias=*/true);
  ParameterBuffer parameters(*layer);
  WeightAverage average(parameters, decay);
  auto sum = torch::zeros_like(parameters.values(), torch::kDouble);
  for (int step = 1; step <= 50; ++step) {
    parameters.values().normal_();
    average.update(step);
    sum = decay * sum + (1 - decay) * parameters.values().to(torch::kDouble);
    const auto expected = sum / (1 - std::pow(decay, step));
    const auto in_training = parameters.values().clone();
    {
      const WeightAverage::Use use(average);
      CHECK(torch::allclose(parameters.values().to(torch::kDouble), expected, 1e-5, 1e-6));
      for (const auto& [name, value] : average.state())
        CHECK(torch::equal(value, ParameterBuffer::part(in_training, parameters.views()[name == "trained.bias"])));
    }
    CHECK(torch::equal(parameters.values(), in_training));
  }
  average.reset();
  const auto again = parameters.values().clone();
  const WeightAverage::Use use(average);
  CHECK(torch::equal(parameters.values(), again));
  WeightAverage without(parameters, /*decay=*/0);
  without.update(1);
  const WeightAverage::Use unchanged(without);
  CHECK(torch::equal(parameters.values(), again));
  CHECK(without.state().empty());
}

}  // namespace metaformer::test_optimizers
