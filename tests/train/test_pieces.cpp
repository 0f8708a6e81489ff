// The trainer's parts, one by one.

#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "infer/sampling.h"
#include "model/gpt.h"
#include "run/named_tensors.h"
#include "run/safetensors.h"
#include "run/tensorboard_writer.h"
#include "support/any_mixer.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"
#include "tasks/batches.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace metaformer {

TEST_CASE("safetensors round-trip every type and shape", "[safetensors]") {
  const NamedTensors tensors = {{"float", torch::randn({2, 3})},
                                {"a \"quoted\" näme", torch::randn({4}, torch::kDouble)},
                                {"half", torch::randn({2, 2}).to(torch::kBFloat16)},
                                {"long", torch::arange(5)},
                                {"scalar", torch::tensor(3.5)},
                                {"empty", torch::zeros({0, 7})},
                                {"strided", torch::randn({3, 4}).t()}};
  const auto bytes = to_safetensors(tensors);
  const auto loaded = from_safetensors(bytes, "t");
  REQUIRE(loaded.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(loaded[i].first == tensors[i].first);
    CHECK(loaded[i].second.scalar_type() == tensors[i].second.scalar_type());
    CHECK(torch::equal(loaded[i].second, tensors[i].second));
  }
}

TEST_CASE("hostile safetensors are refused", "[safetensors]") {
  const auto with_header = [](const std::string& header, const std::string& data = "") {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  };
  const std::string header =
      GENERATE(as<std::string>(), "", "[]", "{", R"({"a":1})", R"({"a":{}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})",
               R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})",
               R"({"a":{"dtype":"F32","shape":[1]}})", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})");
  INFO(header);
  CHECK_THROWS_AS(from_safetensors(with_header(header, "1234"), "t"), Error);
  CHECK_THROWS_AS(from_safetensors(with_header(header + std::string(3, ' ')), "t"), Error);
}

TEST_CASE("every truncation of a safetensors file is noticed", "[safetensors]") {
  const auto bytes = to_safetensors({{"a", torch::randn({3})}, {"b", torch::randn({2})}});
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_THROWS_AS(from_safetensors(bytes.substr(0, length), "t"), Error);
  CHECK_THROWS_AS(from_safetensors(bytes + "x", "t"), Error);
  CHECK_THROWS_AS(from_safetensors(std::string(8, '\xff'), "t"), Error);
  CHECK_THROWS_WITH(from_safetensors("{", "some/file"), ContainsSubstring("some/file: not a valid safetensors file"));
}

TEST_CASE("loading into another architecture changes nothing and says what differs", "[safetensors]") {
  const auto target = torch::zeros({2, 2}), other = torch::zeros({3});
  const NamedTensors targets = {{"a", target}, {"b", other}};
  CHECK_THROWS_WITH(copy_by_name({{"a", torch::ones({2, 2})}}, targets, "f"), ContainsSubstring("no tensor 'b'"));
  CHECK_THROWS_WITH(copy_by_name({{"a", torch::ones({2, 2})}, {"b", torch::ones({4})}}, targets, "f"),
                    ContainsSubstring("'b' has shape [4], this model's has [3]"));
  CHECK_THROWS_WITH(
      copy_by_name({{"a", torch::ones({2, 2})}, {"b", torch::ones({3})}, {"c", torch::ones({1})}}, targets, "f"),
      ContainsSubstring("'c' is not part of this model"));
  CHECK(target.abs().sum().item<double>() == 0);
  copy_by_name({{"a", torch::ones({2, 2})}, {"b", torch::ones({3})}}, targets, "f");
  CHECK(target.sum().item<double>() == 4);
}

TEST_CASE("a padded batch grows to a multiple of 8 tokens, at most to the context, and an even one does not",
          "[batch]") {
  const auto [length, context, expected] =
      GENERATE(table<std::int64_t, std::int64_t, std::int64_t>({{5, 20, 8}, {8, 20, 8}, {9, 20, 16}, {17, 20, 20}}));
  LabelledRows rows{.rows = 2, .length = length, .labels = {1, 0}};
  rows.ids.assign(2 * length, 7);
  rows.segments.assign(2 * length, 0);
  rows.segments.back() = -1;
  const auto even = LabelledRows{.rows = 2, .length = length, .ids = rows.ids, .labels = rows.labels};
  CHECK(to_batch(even, torch::kCPU, context).ids_bc.size(1) == length);
  const auto batch = to_batch(rows, torch::kCPU, context);
  CHECK(batch.ids_bc.sizes() == torch::IntArrayRef({2, expected}));
  CHECK((batch.ids_bc.narrow(1, 0, length) == 7).all().item<bool>());
  CHECK(batch.segments_bc.sizes() == batch.ids_bc.sizes());
  CHECK((batch.segments_bc >= 0).sum(1).equal(torch::tensor({length, length - 1})));
  CHECK(batch.labels_b.equal(torch::tensor({1L, 0L})));
}

TEST_CASE("learning rates follow their formulas", "[schedule]") {
  TrainConfig config;
  config.steps = 1000;
  config.warmup_steps = 99;
  config.learning_rate = 1;
  config.min_learning_rate = 0.1;
  CHECK(learning_rate_at(config, 0) == Approx(0.01));
  CHECK(learning_rate_at(config, 98) == Approx(0.99));
  CHECK(learning_rate_at(config, 99) == Approx(1));
  CHECK(learning_rate_at(config, 999) == Approx(0.1 + 0.45 * (1 + std::cos(std::numbers::pi * 900 / 901))));
  CHECK(learning_rate_at(config, 5000) == Approx(0.1));
  config.schedule = ScheduleKind::linear;
  CHECK(learning_rate_at(config, 99 + 901 / 2) == Approx(0.55).epsilon(0.01));
  config.schedule = ScheduleKind::constant;
  CHECK(learning_rate_at(config, 999) == 1);
  config.warmup_steps = 5000;  // beyond the end is legal
  CHECK(learning_rate_at(config, 999) == Approx(1000.0 / 5001));
  config.warmup_steps = 0;
  CHECK(learning_rate_at(config, 0) == 1);
}

TEST_CASE("AdamW follows its formula, decays matrices alone, and resumes exactly", "[optimizer]") {
  torch::manual_seed(0);
  torch::nn::Linear layer(3, 2);
  ParameterBuffer parameters(*layer);
  TrainConfig config;
  AdamW optimizer(parameters, config);
  auto weight = layer->weight.detach().to(torch::kDouble).clone(),
       bias = layer->bias.detach().to(torch::kDouble).clone();
  std::array<torch::Tensor, 2> values = {weight, bias};
  std::array<torch::Tensor, 2> first = {torch::zeros_like(weight), torch::zeros_like(bias)},
                               second = {first[0].clone(), first[1].clone()};
  std::unique_ptr<AdamW> resumed;
  for (int step = 1; step <= 5; ++step) {
    const double rate = 0.1 / step;
    parameters.gradients().normal_();
    const std::array<torch::Tensor, 2> gradients = {layer->weight.grad().to(torch::kDouble),
                                                    layer->bias.grad().to(torch::kDouble)};
    for (std::size_t i = 0; i < 2; ++i) {
      first[i] = 0.9 * first[i] + 0.1 * gradients[i];
      second[i] = 0.99 * second[i] + 0.01 * gradients[i].square();
      values[i] *= 1 - rate * (i == 0 ? 0.1 : 0);
      values[i] -=
          rate * (first[i] / (1 - std::pow(0.9, step))) / ((second[i] / (1 - std::pow(0.99, step))).sqrt() + 1e-8);
    }
    auto& active = resumed ? *resumed : optimizer;
    active.step(rate);
    if (step == 3) {
      const auto saved = from_safetensors(to_safetensors(optimizer.state()), "t");
      resumed = std::make_unique<AdamW>(parameters, config);
      resumed->load_state(saved, "t");
    }
    CHECK(torch::allclose(layer->weight.to(torch::kDouble), values[0], 1e-5, 1e-6));
    CHECK(torch::allclose(layer->bias.to(torch::kDouble), values[1], 1e-5, 1e-6));
  }
}

TEST_CASE("greedy picking takes the likeliest, the first of equals", "[sampling]") {
  SamplingOptions options{.temperature = 0};
  CHECK(TokenPicker(options).pick(std::vector<double>{1, 3, 2, 3}, 0.99) == 1);
}

TEST_CASE("picking follows the softmax with temperature", "[sampling]") {
  const double temperature = GENERATE(0.5, 1.0, 2.0);
  const SamplingOptions options{.temperature = temperature, .top_k = 0};
  const std::vector<double> logits = {0.3, -1, 2, 0.5};
  std::array<double, 4> counts{}, expected{};
  double total = 0;
  for (std::size_t i = 0; i < 4; ++i) total += expected[i] = std::exp(logits[i] / temperature);
  constexpr int draws = 10'000;
  for (int i = 0; i < draws; ++i)
    ++counts[static_cast<std::size_t>(TokenPicker(options).pick(logits, (i + 0.5) / draws))];
  for (std::size_t i = 0; i < 4; ++i) CHECK(counts[i] / draws == Approx(expected[i] / total).margin(2e-4));
}

TEST_CASE("top-k and top-p keep the likeliest and nothing else", "[sampling]") {
  const std::vector<double> logits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  const auto reached = [&](const SamplingOptions& options) {
    std::set<std::int32_t> tokens;
    for (int i = 0; i < 1000; ++i) tokens.insert(TokenPicker(options).pick(logits, i / 1000.0));
    return tokens;
  };
  using Tokens = std::set<std::int32_t>;
  CHECK(reached({.temperature = 1, .top_k = 1}) == Tokens{1});
  CHECK(reached({.temperature = 1, .top_k = 2}) == Tokens{1, 3});
  CHECK(reached({.temperature = 1, .top_k = 9}) == Tokens{0, 1, 2, 3});
  CHECK(reached({.temperature = 1, .top_k = 0, .top_p = 0.39}) == Tokens{1});
  CHECK(reached({.temperature = 1, .top_k = 0, .top_p = 0.69}) == Tokens{1, 3});
  CHECK(reached({.temperature = 1, .top_k = 0, .top_p = 0.95}) == Tokens{0, 1, 2, 3});
  CHECK(reached({.temperature = 1e-6, .top_k = 0}) == Tokens{1});
  CHECK(reached({.temperature = 1e6, .top_k = 0}) == Tokens{0, 1, 2, 3});
}

TEST_CASE("past the context the last half is kept", "[sampling]") {
  const std::int64_t context = GENERATE(1, 2, 5, 8);
  ContextWindow window(context);
  std::vector<std::int32_t> all;
  for (std::int32_t token = 0; token < 40; ++token) {
    all.push_back(token);
    const auto before = window.tokens().size();
    const bool cut = window.push(token);
    CHECK(cut == (static_cast<std::int64_t>(before) == context));
    const auto& tokens = window.tokens();
    if (cut) CHECK(static_cast<std::int64_t>(tokens.size()) == std::max<std::int64_t>(1, context / 2));
    CHECK(std::equal(tokens.rbegin(), tokens.rend(), all.rbegin()));
  }
}

TEST_CASE("a window that slides keeps the last tokens of the context", "[sampling]") {
  const std::int64_t context = GENERATE(1, 2, 5);
  ContextWindow window(context, WindowKind::slide);
  std::vector<std::int32_t> all;
  for (std::int32_t token = 0; token < 20; ++token) {
    all.push_back(token);
    CHECK(window.push(token) == (token >= context));
    const auto first = all.size() > static_cast<std::size_t>(context) ? all.end() - context : all.begin();
    CHECK(window.tokens() == std::vector<std::int32_t>(first, all.end()));
  }
}

// What nanoGPT does: every token from the whole of the last `context` tokens, without anything remembered.
static std::vector<std::int32_t> recompute(Gpt& model, std::vector<std::int32_t> tokens, int count) {
  const torch::NoGradGuard no_grad;
  TokenPicker picker({.temperature = 1});
  std::vector<std::int32_t> generated;
  for (int i = 0; i < count; ++i) {
    const auto kept = std::min<std::ptrdiff_t>(std::ssize(tokens), model.config().context);
    const std::vector<std::int64_t> window(tokens.end() - kept, tokens.end());
    const auto logits_bcv = model.forward(Batch{.ids_bc = torch::tensor(window).unsqueeze(0)}, nullptr);
    const auto logits_v = logits_bcv[0][kept - 1].to(torch::kDouble).contiguous();
    const std::span<const double> values(logits_v.data_ptr<double>(), static_cast<std::size_t>(logits_v.numel()));
    const Rng rng(1337, RandomPurpose::sampling, 0);
    generated.push_back(picker.pick(values, rng.uniform(static_cast<std::uint64_t>(i))));
    tokens.push_back(generated.back());
  }
  return generated;
}

// One with every mixer and several contexts, in evaluation mode, its weights drawn from N(0, 0.3).
static std::shared_ptr<Gpt> any_small_gpt() {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = GENERATE(1, 7, 16);
  config.mixer = any_mixer();
  const auto model = std::make_shared<Gpt>(config, 11);
  {
    torch::manual_seed(3);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.normal_(0, 0.3);
  }
  model->eval();
  return model;
}

TEST_CASE("a sliding window gives what encoding the last context tokens for every token gives", "[sampling]") {
  const auto small = any_small_gpt();
  auto& model = *small;
  const std::vector<std::int32_t> prompt =
      GENERATE(std::vector<std::int32_t>{4}, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto cached = GENERATE(true, false);
  TextGenerator generator(model, prompt, {.temperature = 1, .cached = cached, .window = WindowKind::slide},
                          torch::kCPU);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(generator.next().at(0));
  CHECK(tokens == recompute(model, prompt, 40));
}

TEST_CASE("cached and uncached generation give the same text, past the context too", "[sampling]") {
  const auto small = any_small_gpt();
  auto& model = *small;
  const auto generate = [&](bool cached, std::uint64_t seed) {
    TextGenerator generator(model, {1, 2, 3}, {.temperature = 1, .seed = seed, .cached = cached}, torch::kCPU);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(generator.next().at(0));
    CHECK((generator.cache_bytes() == 0 || cached));
    return tokens;
  };
  CHECK(generate(true, 1) == generate(false, 1));
  CHECK(generate(true, 1) == generate(true, 1));
  CHECK(generate(true, 1) != generate(true, 2));
}

TEST_CASE("samples of a batch are those of one by one, and differ", "[sampling]") {
  ModelConfig config;
  config.layers = 1;
  config.width = 16;
  config.context = 8;
  Gpt model(config, 11);
  initialise(model, 1);
  model.eval();
  const auto generate = [&](std::int64_t samples, bool cached) {
    TextGenerator generator(model, {4, 5}, {.temperature = 1, .cached = cached}, torch::kCPU, samples);
    std::vector<std::vector<std::int32_t>> texts(static_cast<std::size_t>(samples));
    for (int i = 0; i < 20; ++i) {
      const auto tokens = generator.next();
      for (std::size_t s = 0; s < texts.size(); ++s) texts[s].push_back(tokens.at(s));
    }
    return texts;
  };
  const auto five = generate(5, true);
  CHECK(five == generate(5, false));
  CHECK(five[0] == generate(1, true)[0]);
  CHECK(std::set<std::vector<std::int32_t>>(five.begin(), five.end()).size() == 5);
}

TEST_CASE("a stop string ends the text before it, however it is cut", "[sampling]") {
  const std::string text = "abcSTxSTOPrest";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    StopFilter filter({"STOP", "never"});
    std::string shown;
    for (std::size_t at = 0; at < text.size() && !filter.stopped(); at += step)
      shown += filter.feed(text.substr(at, step));
    CHECK(filter.stopped());
    CHECK(shown + filter.rest() == "abcSTx");
  }
  StopFilter unmet({"STOP"});
  CHECK(unmet.feed("abST") == "ab");
  CHECK(unmet.feed("O") == "");
  CHECK(unmet.rest() == "STO");
  StopFilter two({"bc", "abcd"});
  CHECK(two.feed("xabcd") == "x");
}

TEST_CASE("CRC-32C has the values of RFC 3720", "[tensorboard]") {
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
}

}  // namespace metaformer
