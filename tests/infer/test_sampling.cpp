// Text from a model, token by token.

#include <cmath>
#include <set>

#include "base/random.h"
#include "config/loader.h"
#include "infer/beam_search.h"
#include "infer/generated_text.h"
#include "model/make_model.h"
#include "support/any_mixer.h"

namespace metaformer::test_sampling {

namespace {

// Each token from one pass over the last `seen` tokens, without a cache, as in nanoGPT.
Tokens recompute(SequenceModel& model, Tokens tokens, int count, std::int64_t seen, std::uint64_t seed = 1337) {
  const torch::NoGradGuard no_grad;
  TokenPicker picker({.temperature = 1});
  const auto length = tokens.size();
  for (int i = 0; i < count; ++i) {
    const auto kept = std::min<std::ptrdiff_t>(std::ssize(tokens), seen);
    const std::vector<std::int64_t> window(tokens.end() - kept, tokens.end());
    const auto logits_bcv = model.evaluate({.ids_bc = torch::tensor(window).unsqueeze(0)});
    const auto logits_v = logits_bcv[0][-1].to(torch::kDouble).contiguous();
    const std::span<const double> values(logits_v.data_ptr<double>(), static_cast<std::size_t>(logits_v.numel()));
    const Rng rng(seed, RandomPurpose::sampling, 0);
    tokens.push_back(picker.pick(values, rng.uniform(static_cast<std::uint64_t>(i))));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(length), tokens.end()};
}

std::shared_ptr<Gpt> any_small_gpt() {
  auto config = small_config(GENERATE(1, 7));
  config.mixer = any_mixer();
  return random_gpt(config);
}

std::shared_ptr<SequenceModel> any_recurrent_or_window_model() {
  const std::string model = GENERATE("{kind: lstm, carry_state: true}", "{kind: lstm}", "{kind: gru}",
                                     "{kind: feed_forward, window: 2}", "{kind: feed_forward, window: 4}");
  const auto config = default_experiment({"model=" + model, "model.width=8", "model.context=6"}).config;
  return with_random_weights(make_model(config, {.vocabulary = small_vocabulary}), 0.5);
}

// Texts of several samples.
std::vector<Tokens> texts_of(SequenceModel& model, const Tokens& prompt, const SamplingOptions& options,
                             std::size_t samples, int steps) {
  TextGenerator generator(model, prompt, options, torch::kCPU, static_cast<std::int64_t>(samples));
  std::vector<Tokens> texts(samples);
  for (int i = 0; i < steps; ++i) {
    const auto& tokens = generator.next();
    for (std::size_t s = 0; s < samples; ++s) texts[s].push_back(tokens.at(s));
  }
  return texts;
}

// Rounds all weights to bfloat16 numbers.
void round_weights(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.copy_(parameter.to(torch::kBFloat16));
}

const Tokens long_prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};

}  // namespace

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

TEST_CASE("top-k and top-p keep only the most likely tokens", "[sampling]") {
  const std::vector<double> logits = {std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};
  using Ids = std::set<std::int32_t>;
  const auto [temperature, top_k, top_p, expected] =
      GENERATE(table<double, std::int64_t, double, Ids>({{1, 1, 1, {1}},
                                                         {1, 2, 1, {1, 3}},
                                                         {1, 9, 1, {0, 1, 2, 3}},
                                                         {1, 0, 0.39, {1}},
                                                         {1, 0, 0.69, {1, 3}},
                                                         {1, 0, 0.95, {0, 1, 2, 3}},
                                                         {1e-6, 0, 1, {1}},
                                                         {1e6, 0, 1, {0, 1, 2, 3}}}));
  TokenPicker picker({.temperature = temperature, .top_k = top_k, .top_p = top_p});
  Ids reached;
  for (int i = 0; i < 1000; ++i) reached.insert(picker.pick(logits, i / 1000.0));
  CHECK(reached == expected);
  CHECK(TokenPicker({.temperature = 0}).pick(std::vector<double>{1, 3, 2, 3}, 0.99) == 1);  // the first of equal ones
}

TEST_CASE("ids without a token are never picked, and have no effect on the others", "[sampling]") {
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

TEST_CASE("past the context the last half of the tokens is kept, or the window slides", "[sampling]") {
  const std::int64_t context = GENERATE(1, 2, 5, 8);
  const auto kind = GENERATE(WindowKind::half, WindowKind::slide);
  ContextWindow window(context, kind);
  Tokens all;
  for (std::int32_t token = 0; token < 40; ++token) {
    all.push_back(token);
    const auto before = std::ssize(window.tokens());
    CHECK(window.push(token) == (before == context));
    const auto kept = before < context            ? before + 1
                      : kind == WindowKind::slide ? context
                                                  : std::max<std::int64_t>(1, context / 2);
    CHECK(window.tokens() == Tokens(all.end() - kept, all.end()));
    const auto seen = std::min<std::ptrdiff_t>(token + 1, context);  // a window begins with the end of the prompt
    CHECK(ContextWindow(context, kind, all).tokens() == Tokens(all.end() - seen, all.end()));
  }
}

TEST_CASE("a sliding window gives the same text as a new pass over the whole context for every token", "[sampling]") {
  const auto model = any_small_gpt();
  const auto prompt = GENERATE(Tokens{4}, long_prompt);
  const auto cached = GENERATE(true, false);
  const SamplingOptions options{.temperature = 1, .cached = cached, .window = WindowKind::slide};
  CHECK(by_host(*model, prompt, options, 1, 24) == recompute(*model, prompt, 24, model->context()));
}

TEST_CASE("the first token after a prompt longer than the context depends on the whole context", "[sampling]") {
  const auto model = any_small_gpt();
  const auto cached = GENERATE(true, false);
  const auto window = GENERATE(WindowKind::half, WindowKind::slide);
  for (std::int64_t length = 1; length < 2 * model->context() + 4; ++length) {
    const auto prompt = prompt_of(length);
    CHECK(by_host(*model, prompt, {.temperature = 1, .cached = cached, .window = window}, 1, 1) ==
          recompute(*model, prompt, 1, model->context()));
    CHECK(prompt_cut(*model, length).empty() == (length <= model->context()));
  }
}

TEST_CASE("generation with and without cache gives the same text, also past the context", "[sampling]") {
  const auto model = any_small_gpt();
  const auto text = [&](bool cached, std::uint64_t seed) {
    return by_host(*model, {1, 2, 3}, {.temperature = 1, .seed = seed, .cached = cached}, 1, 30);
  };
  CHECK(text(true, 1) == text(false, 1));
  CHECK(text(true, 1) == text(true, 1));
  CHECK(text(true, 1) != text(true, 2));
}

TEST_CASE("the samples of a batch equal single ones, and differ from each other", "[sampling]") {
  const auto model = GENERATE(true, false) ? random_gpt(small_config(8)) : any_recurrent_or_window_model();
  const auto texts = [&](std::size_t samples, bool cached) {
    return texts_of(*model, {4, 5}, {.temperature = 1, .cached = cached}, samples, 20);
  };
  const auto five = texts(5, true);
  CHECK(five == texts(5, false));
  CHECK(five[0] == texts(1, true)[0]);
  CHECK(std::set<Tokens>(five.begin(), five.end()).size() == 5);
}

TEST_CASE("text of recurrent and feed-forward models past the context equals that of one pass over the whole text",
          "[sampling]") {
  const auto model = any_recurrent_or_window_model();
  const bool cached = GENERATE(true, false);
  const auto text = texts_of(*model, long_prompt, {.temperature = 1, .seed = 4, .cached = cached}, 1, 30)[0];
  CHECK(text == recompute(*model, long_prompt, 30, 1000, 4));
  CHECK(text != recompute(*model, long_prompt, 30, 1000, 5));
  CHECK_FALSE(model->has_recordable_steps());
}

// The reference has the same weights and a context for the whole text.
TEST_CASE("text of mixers with states of fixed size past the context equals that of one pass over the whole text",
          "[sampling]") {
  auto config = small_config(6);
  config.positions = NoPositionsConfig{};
  const auto kind = GENERATE(as<std::string>(), "linear_attention", "retention", "mamba2", "gated_delta_net", "rwkv7",
                             "short_convolution", "identity");
  INFO(kind);
  config.mixer = *make_kind<MixerConfig>(kind);
  config.convolution = GENERATE(0, 3);
  const auto model = random_gpt(config);
  config.context = 64;
  const auto whole = random_gpt(config);
  const bool cached = GENERATE(true, false);
  CHECK(model->has_endless_state());
  CHECK(prompt_cut(*model, 30).empty());
  const auto text = texts_of(*model, long_prompt, {.temperature = 1, .seed = 4, .cached = cached}, 1, 30)[0];
  CHECK(text == recompute(*whole, long_prompt, 30, 1000, 4));
  config.mixers = {{.mixer = config.mixer, .layers = 1}, {.mixer = ScaledDotProductOptions{}, .layers = 1}};
  CHECK_FALSE(random_gpt(config)->has_endless_state());
}

TEST_CASE("a given decoder serves several texts, and in bfloat16 changes none if the weights are bfloat16 numbers",
          "[sampling]") {
  std::shared_ptr<SequenceModel> model;
  if (GENERATE(true, false)) {
    auto config = small_config(8);
    config.mixer = any_mixer_with_decoder();
    model = random_gpt(config);
  } else {
    model = any_recurrent_or_window_model();
  }
  round_weights(*model);
  const std::shared_ptr<Decoder> decoder = model->decoder(2, GENERATE(WeightPrecision::fp32, WeightPrecision::bf16));
  if (decoder == nullptr) return does_not_apply("it has no decoder");
  const auto window = GENERATE(WindowKind::half, WindowKind::slide);
  for (const auto& prompt : {Tokens{4, 5}, long_prompt, Tokens{1}}) {
    const SamplingOptions options{.temperature = 1, .window = window};
    TextGenerator generator(*model, prompt, options, torch::kCPU, 2, {}, decoder),
        own(*model, prompt, options, torch::kCPU, 2);
    CHECK(generate(generator, 24) == generate(own, 24));
  }
}

TEST_CASE("a stop string ends the text before it, into whatever parts the text is divided", "[sampling]") {
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

TEST_CASE("the first sentence ends with a punctuation mark before white space", "[pairs]") {
  const auto [text, first] = GENERATE(table<std::string, std::string>({
      {"A library. It reads files.", "A library."},
      {"Is it 3.5? Yes.", "Is it 3.5?"},
      {"Hello!\nNext", "Hello!"},
      {"no mark at all", "no mark at all"},
      {"version 1.2.3", "version 1.2.3"},
      {"ends here.", "ends here."},
      {"", ""},
  }));
  CHECK(first_sentence(text) == first);
}

}  // namespace metaformer::test_sampling
