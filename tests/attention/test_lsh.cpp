// LSH attention on sequences longer than a chunk: against sums over pairs in float64, and its visible tokens.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "attention/lsh.h"
#include "attention/mixer_support.h"
#include "base/random.h"
#include "config/mixer_config.h"
#include "cpu/hashed_attention.h"
#include "ops/pass.h"

namespace metaformer::test_lsh {

namespace {

constexpr MixerShape shape{.width = 12, .heads = 3, .context = 32};

struct Case {
  torch::Tensor q_bnck, value_bnck, bucket_bnrc, segment_bc;
};

Case random_case(std::int64_t tokens, std::int64_t rounds, bool segmented) {
  torch::manual_seed(5);
  Case c{.q_bnck = torch::randn({2, 2, tokens, 3}, torch::kDouble),
         .value_bnck = torch::randn({2, 2, tokens, 4}, torch::kDouble),
         .bucket_bnrc = torch::randint(0, 6, {2, 2, rounds, tokens}),
         .segment_bc = {}};
  if (!segmented) return c;
  c.segment_bc = torch::arange(tokens).div(11, "floor").repeat({2, 1});
  c.segment_bc.index_put_({1, torch::indexing::Slice(tokens - 5, torch::indexing::None)}, -1);
  return c;
}

torch::Tensor attend(const Case& c, const LshRule& rule) {
  Pass pass;
  return lsh_attention(c.q_bnck, c.value_bnck, c.bucket_bnrc, c.segment_bc, rule, pass);
}

// [c, c]: how often token i sees token j in one head, counted over all rounds, copy by copy.
torch::Tensor times_seen(const Case& c, const LshRule& rule, std::int64_t b, std::int64_t n) {
  const auto tokens = c.q_bnck.size(2), rounds = c.bucket_bnrc.size(2);
  const auto whole = (tokens + rule.chunk - 1) / rule.chunk * rule.chunk;  // with padding after the tokens
  const auto segment = [&](std::int64_t i) -> std::int64_t {
    if (i >= tokens) return -1;
    return c.segment_bc.defined() ? c.segment_bc[b][i].item<std::int64_t>() : 0;
  };
  struct Copy {
    std::int64_t round, bucket, token;
  };
  std::vector<Copy> copies;
  for (std::int64_t r = 0; r < rounds; ++r)
    for (std::int64_t i = 0; i < whole; ++i)
      copies.push_back({r, segment(i) < 0 ? 1000 : c.bucket_bnrc[b][n][r][i].item<std::int64_t>(), i});
  std::sort(copies.begin(), copies.end(), [](const Copy& x, const Copy& y) {
    return std::tie(x.round, x.bucket, x.token) < std::tie(y.round, y.bucket, y.token);
  });
  const auto count = static_cast<std::int64_t>(copies.size()), chunks = count / rule.chunk;
  const auto seen_ce = torch::zeros({tokens, tokens}, torch::kDouble);
  auto seen = seen_ce.accessor<double, 2>();
  for (std::int64_t s = 0; s < count; ++s) {
    std::vector<std::int64_t> looked_at = {s / rule.chunk, (s / rule.chunk + chunks - 1) % chunks};
    if (!rule.causal && chunks > 2) looked_at.push_back((s / rule.chunk + 1) % chunks);
    const auto& query = copies[static_cast<std::size_t>(s)];
    for (std::int64_t other = 0; other < count; ++other) {
      if (std::find(looked_at.begin(), looked_at.end(), other / rule.chunk) == looked_at.end()) continue;
      const auto& key = copies[static_cast<std::size_t>(other)];
      const bool bucket_fits = !rule.same_bucket || (key.round == query.round && key.bucket == query.bucket);
      const bool in_time = rule.causal ? key.token < query.token : key.token != query.token;
      if (bucket_fits && in_time && segment(query.token) >= 0 && segment(query.token) == segment(key.token))
        seen[query.token][key.token] += 1;
    }
  }
  return seen_ce;
}

// The logarithms of the rounds' sums cancel: a weight is exp(score) times the number of times that its key is seen.
torch::Tensor by_pairs(const Case& c, const LshRule& rule) {
  auto t_bnck = torch::zeros_like(c.value_bnck);
  for (std::int64_t b = 0; b < c.q_bnck.size(0); ++b)
    for (std::int64_t n = 0; n < c.q_bnck.size(1); ++n) {
      const auto q_ck = c.q_bnck[b][n];
      auto seen_ce = times_seen(c, rule, b, n), value_ck = c.value_bnck[b][n];
      if (rule.correct_duplicates) seen_ce = seen_ce.clamp_max(1);
      const auto weight_ce = seen_ce * torch::matmul(q_ck, (q_ck / q_ck.norm(2, 1, true)).t()).exp();
      const auto total_c1 = weight_ce.sum(1, true);
      const auto mixed_ck = torch::matmul(weight_ce, value_ck) / total_c1;
      if (c.segment_bc.defined()) value_ck = value_ck.masked_fill((c.segment_bc[b] < 0).unsqueeze(1), 0);
      t_bnck[b][n] = torch::where(total_c1 > 0, mixed_ck, value_ck);
    }
  return t_bnck;
}

}  // namespace

TEST_CASE("LSH attention equals a sum over the pairs of tokens that see each other after hashing", "[lsh]") {
  const LshRule rule{.chunk = GENERATE(4, 8),
                     .causal = GENERATE(true, false),
                     .same_bucket = GENERATE(false, true),
                     .correct_duplicates = GENERATE(false, true)};
  const std::int64_t tokens = GENERATE(16, 29), rounds = GENERATE(1, 3);
  const auto c = random_case(tokens, rounds, GENERATE(false, true));
  INFO(rule.chunk << " causal " << rule.causal << " bucket " << rule.same_bucket << " corrected "
                  << rule.correct_duplicates << " tokens " << tokens << " rounds " << rounds);
  CHECK(relative_error(attend(c, rule), by_pairs(c, rule)) < 1e-12);
}

TEST_CASE("gradients of LSH attention with fixed buckets equal finite differences", "[lsh]") {
  const LshRule rule{.chunk = 4,
                     .causal = GENERATE(true, false),
                     .same_bucket = GENERATE(false, true),
                     .correct_duplicates = GENERATE(false, true)};
  auto c = random_case(13, 2, GENERATE(false, true));
  c.q_bnck.requires_grad_();
  c.value_bnck.requires_grad_();
  const auto direction = torch::randn_like(c.value_bnck);
  check_gradients(
      {c.q_bnck, c.value_bnck}, [&] { return (attend(c, rule) * direction).sum(); }, 1e-8);
}

TEST_CASE("no token attends to a later token or to another segment", "[lsh]") {
  const bool segmented = GENERATE(false, true);
  const auto mixer = random_mixer(LshOptions{.rounds = 3, .chunk = 4}, shape);
  const std::int64_t tokens = 23;
  const auto segment_bc = segmented ? torch::arange(tokens).div(9, "floor").unsqueeze(0) : torch::Tensor();
  const auto x = torch::randn({1, tokens, 12}, torch::kDouble).requires_grad_();
  const auto y = mix(*mixer, x, self_visibility(true, segment_bc));
  for (std::int64_t i = 0; i < tokens; ++i) {
    const auto dx = torch::autograd::grad({y[0][i].sum()}, {x}, {}, /*retain_graph=*/true)[0];
    for (std::int64_t j = 0; j < tokens; ++j) {
      const bool hidden = j > i || (segmented && i / 9 != j / 9);
      if (hidden) REQUIRE(dx[0][j].abs().max().item<double>() == 0);
    }
  }
}

// Only the choice of the visible tokens, which chooses_by_whole_sequence names, depends on the future.
TEST_CASE("the visible past tokens depend on future tokens, and chooses_by_whole_sequence is true", "[lsh]") {
  const MixerConfig options = LshOptions{.rounds = 2, .chunk = 4};
  CHECK(chooses_by_whole_sequence(options));
  CHECK_FALSE(chooses_by_whole_sequence(MixerConfig()));
  const auto mixer = random_mixer(options, shape);
  const auto x = torch::randn({1, 32, 12}, torch::kDouble);
  auto changed = x.clone();
  changed.narrow(1, 31, 1).normal_();
  const auto before = mix(*mixer, x, self_visibility(true, {})),
             after = mix(*mixer, changed, self_visibility(true, {}));
  CHECK_FALSE(torch::equal(before.narrow(1, 0, 31), after.narrow(1, 0, 31)));
}

TEST_CASE("a generated token equals the last token of a pass over all tokens so far", "[lsh]") {
  const auto mixer = random_mixer(LshOptions{.rounds = 2, .chunk = 4}, shape);
  const auto x = torch::randn({2, 21, 12}, torch::kDouble);
  const auto visibility = self_visibility(true, {});
  MixerState state(21);
  mix(*mixer, x.narrow(1, 0, 6).contiguous(), visibility, &state);
  for (std::int64_t i = 6; i < 21; ++i) {
    const auto newest = mix(*mixer, x.narrow(1, i, 1).contiguous(), visibility, &state);
    const auto whole = mix(*mixer, x.narrow(1, 0, i + 1).contiguous(), visibility);
    CHECK(relative_error(newest, whole.narrow(1, i, 1)) < 1e-12);
  }
}

TEST_CASE("training draws new hashes in every pass, evaluation does not", "[lsh]") {
  const auto mixer = random_mixer(LshOptions{.rounds = 1, .chunk = 4}, shape);
  const auto x = torch::randn({1, 32, 12}, torch::kDouble);
  const auto output = [&](std::int64_t key) {
    Pass pass{.training = true, .random = RandomStream(torch::full({1}, key, torch::kLong))};
    return mixer->forward(x, x, self_visibility(true, {}), nullptr, pass);
  };
  CHECK(torch::equal(output(1), output(1)));
  CHECK_FALSE(torch::equal(output(1), output(2)));
  CHECK(torch::equal(mix(*mixer, x, self_visibility(true, {})), mix(*mixer, x, self_visibility(true, {}))));
}

TEST_CASE("vectors share a bucket more often if the angle between them is smaller", "[lsh]") {
  const RandomDraw draw{torch::full({1}, 3, torch::kLong), 0};
  const auto rotation_nkri = random_normal(draw, {1, 16, 2000, 4});
  auto together = [&](double angle) {
    auto pair = torch::zeros({1, 1, 2, 16});
    pair[0][0][0][0] = 5;
    pair[0][0][1][0] = std::cos(angle);
    pair[0][0][1][1] = std::sin(angle);
    const auto bucket_bnrc = lsh_buckets_bnrc(pair, rotation_nkri);
    CHECK(bucket_bnrc.max().item<std::int64_t>() == 7);
    CHECK(bucket_bnrc.min().item<std::int64_t>() == 0);
    return (bucket_bnrc.select(3, 0) == bucket_bnrc.select(3, 1)).to(torch::kDouble).mean().item<double>();
  };
  const double parallel = together(0), near = together(0.3), far = together(1), opposite = together(std::numbers::pi);
  CHECK(parallel == 1);
  CHECK(near > far + 0.1);
  CHECK(far > 1.0 / 8);  // the value for independent vectors
  CHECK(opposite == 0);
}

TEST_CASE("normal numbers are those of the counter-based generator", "[lsh]") {
  const std::int64_t key = GENERATE(0, -77);
  const auto drawn = random_normal({torch::full({1}, key, torch::kLong), 4}, {50, 1000});
  const auto rng = Rng::with_key(Rng::with_key(static_cast<std::uint64_t>(key)).bits(4));
  const auto flat = drawn.view(-1);
  for (const std::int64_t i : {0, 1, 999, 1000, 49999}) {
    const auto place = 2 * static_cast<std::uint64_t>(i);
    const double expected =
        std::sqrt(-2 * std::log1p(-rng.uniform(place))) * std::cos(2 * std::numbers::pi * rng.uniform(place + 1));
    CHECK(flat[i].item<double>() == Approx(expected).epsilon(1e-6));
  }
  const double standard_error = 1 / std::sqrt(50000.0);
  CHECK(std::fabs(drawn.mean().item<double>()) < 4 * standard_error);
  CHECK(std::fabs(drawn.square().mean().item<double>() - 1) < 4 * std::sqrt(2.0) * standard_error);
}

TEST_CASE("by default there are two buckets per chunk", "[lsh]") {
  const LshOptions options{.chunk = 64};
  CHECK(options.bucket_count(16384) == 512);
  CHECK(options.bucket_count(100) == 4);
  CHECK(options.bucket_count(64) == 2);
  CHECK(LshOptions{.buckets = {6}}.bucket_count(1000) == 6);
}

TEST_CASE("the CPU kernel of LSH attention gives the values and gradients of the operators", "[lsh]") {
  const bool causal = GENERATE(true, false), same_bucket = GENERATE(true, false), segmented = GENERATE(true, false);
  const std::int64_t tokens = GENERATE(17, 48, 75), rounds = GENERATE(1, 3);
  const LshRule rule{.chunk = 16, .causal = causal, .same_bucket = same_bucket};
  INFO("causal " << causal << ", same bucket " << same_bucket << ", segmented " << segmented << ", tokens " << tokens
                 << ", rounds " << rounds);
  auto wide = random_case(tokens, rounds, segmented);
  wide.q_bnck[0][0][3].zero_();  // a zero key has no direction
  const auto dt_bnck = torch::randn_like(wide.value_bnck);
  const auto run = [&](torch::ScalarType type) {
    auto c = wide;
    c.q_bnck = wide.q_bnck.to(type).requires_grad_();
    c.value_bnck = wide.value_bnck.to(type).requires_grad_();
    const auto t_bnck = attend(c, rule);
    auto all = torch::autograd::grad({t_bnck}, {c.q_bnck, c.value_bnck}, {dt_bnck.to(type)});
    // The gradient of a norm is undefined at 0.
    all[0] = all[0].clone();
    all[0][0][0][3].zero_();
    all.push_back(t_bnck.detach());
    return all;
  };
  const auto found = run(torch::kFloat), expected = run(torch::kDouble);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(relative_error(found[i], expected[i]) < 2e-6);
}

TEST_CASE("the kernel of LSH attention gives the same results with every instruction set, on strided rows", "[lsh]") {
  const auto code = GENERATE(VectorCode::plain, VectorCode::avx2, VectorCode::avx512);
  if (code > widest_vector_code()) return skip("this CPU lacks the instruction set");
  torch::manual_seed(3);
  constexpr std::int64_t tokens = 100, rounds = 2, width = 20, stride = 50;
  const auto q = torch::randn({tokens, stride}), v = torch::randn({tokens, stride}), dt = torch::randn({tokens, width});
  const auto bucket = torch::randint(0, 6, {rounds, tokens});
  const auto rows = [](const torch::Tensor& x) { return HeadRows{x.data_ptr(), x.stride(0), width}; };
  const auto run = [&](VectorCode with) {
    auto t = torch::zeros({tokens, width}), dq = torch::zeros_like(t), dv = torch::zeros_like(t);
    auto log_sum = torch::zeros(tokens);
    const HashedHead head{.causal = true,
                          .tokens = tokens,
                          .rounds = rounds,
                          .chunk = 32,
                          .bucket = bucket.const_data_ptr<std::int64_t>(),
                          .buckets = 6,
                          .q = rows(q),
                          .v = rows(v),
                          .t = rows(t),
                          .log_sum = log_sum.data_ptr<float>(),
                          .dt = rows(dt),
                          .dq = rows(dq),
                          .dv = rows(dv)};
    HeadWorkspace room;
    attend_hashed(head, room, with);
    attend_hashed_backward(head, room, with);
    return std::vector<torch::Tensor>{t, dq, dv, torch::exp(-log_sum)};  // 0 where a token sees nothing
  };
  const auto found = run(code), expected = run(VectorCode::plain);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(relative_error(found[i], expected[i]) < 2e-6);
}

}  // namespace metaformer::test_lsh
