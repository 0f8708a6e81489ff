// Text from a model, token by token.

#include <cmath>
#include <set>

#include "base/random.h"
#include "infer/sampling.h"
#include "model/parameters.h"
#include "model/token_model.h"
#include "support/any_mixer.h"

namespace metaformer {

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

TEST_CASE("ids without a token are never picked, and the others as if they were all", "[sampling]") {
  const std::vector<double> logits = {9, 0.3, 1e9, -1, 2, 7}, others = {0.3, -1, 2};
  const std::vector<std::int32_t> ids = {1, 3, 4};
  const auto temperature = GENERATE(0.0, 1.0);
  const auto top_k = GENERATE(0, 1, 2, 200);
  const auto top_p = GENERATE(0.6, 1.0);
  SamplingOptions options{.temperature = temperature, .top_k = top_k, .top_p = top_p};
  const SamplingOptions plain = options;
  options.never = {0, 2, 5};
  for (int i = 0; i < 100; ++i) {
    const auto expected = TokenPicker(plain).pick(others, i / 100.0);
    CHECK(TokenPicker(options).pick(logits, i / 100.0) == ids[static_cast<std::size_t>(expected)]);
  }
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

TEST_CASE("a window begins with the last tokens of a prompt, as many as the context has", "[sampling]") {
  const auto kind = GENERATE(WindowKind::half, WindowKind::slide);
  std::vector<std::int32_t> prompt;
  for (std::int32_t length = 1; length < 70; ++length) {
    prompt.push_back(length);
    const auto seen = std::min<std::ptrdiff_t>(length, 32);
    CHECK(ContextWindow(32, kind, prompt).tokens() == std::vector<std::int32_t>(prompt.end() - seen, prompt.end()));
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
    const auto logits_bcv = model.evaluate(Batch{.ids_bc = torch::tensor(window).unsqueeze(0)});
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
  TransformerConfig config;
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

TEST_CASE("the first token after a prompt beyond the context follows from the whole context", "[sampling]") {
  const auto small = any_small_gpt();
  auto& model = *small;
  const auto cached = GENERATE(true, false);
  const auto window = GENERATE(WindowKind::half, WindowKind::slide);
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 2 * static_cast<std::int32_t>(model.config().context) + 3; ++i) {
    prompt.push_back(i * i % 11);
    TextGenerator generator(model, prompt, {.temperature = 1, .cached = cached, .window = window}, torch::kCPU);
    CHECK(generator.next().at(0) == recompute(model, prompt, 1).at(0));
  }
}

TEST_CASE("a prompt that is cut is told in tokens", "[sampling]") {
  TransformerConfig config;
  config.width = 8;
  config.heads = 2;
  config.context = 32;
  Gpt model(config, 11);
  CHECK(prompt_cut(model, 32).empty());
  CHECK(prompt_cut(model, 33) == "the prompt has 33 tokens; the model sees the last 32 of them (model.context)");
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
  TransformerConfig config;
  config.layers = 1;
  config.width = 16;
  config.context = 8;
  Gpt model(config, 11);
  initialise(model, 1);
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

}  // namespace metaformer
