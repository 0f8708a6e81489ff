// Rules between keys: refused combinations, with the key and the reason, and accepted ones.

#include "config/complaint.h"

namespace metaformer::test_rules {

namespace {

// A refused combination. The message names `key`, by default that of the last override.
struct Rule {
  Overrides overrides;
  std::string why, key = overrides.back().substr(0, overrides.back().find('='));
};

void check_refused(const Rule& rule) {
  const auto [code, message] = failure([&] { default_experiment(rule.overrides); });
  INFO(message);
  CHECK(code == ExitCode::usage);
  CHECK(message.starts_with("--set "));
  CHECK_THAT(message, ContainsSubstring(": " + rule.key + ": ") && Mentions(rule.why));
}

const std::vector<Rule> refused = {
    // Keys without effect, and data.
    {{"model.embedding.scale=log_count_ratio"}, "no meaning|task language_model"},
    {{"task=sort", "model.embedding.ngrams.order=2"}, "no meaning|task sort"},
    {{"task=classification", "model.embedding.tie=false"}, "no meaning|task classification"},
    {{"task=classification", "model.embedding.ngrams.buckets=512"}, "model.embedding.ngrams.order 1"},
    {{"train.divergence.spikes.action=skip"}, "train.divergence.spikes.threshold 0"},
    {{"train.lora.alpha=2"}, "no effect|train.lora.rank 0"},
    {{"train.lora.targets=[mixer.output]"}, "no effect|train.lora.rank 0"},
    {{"train.lora.rank=2"}, "2 adapts initial weights|train.init_from names none|Hugging Face"},
    {{"train.init_from=run", "train.lora.rank=2", "train.lora.targets=[]"}, "is empty|[mixer]"},
    {{"train.init_from=run", "train.lora={rank: 2, alpha: 0}"}, "0|out of range|above 0", "train.lora.alpha"},
    {{"train.lora.rank=-1"}, "-1|out of range|at least 0"},
    {{"task=classification", "model=linear", "train.lora.rank=2"}, "unknown key", "train.lora"},
    {{"model.norm.position=post", "model.norm.final=false"}, "model.norm.position post"},
    {{"model=linear"}, "linear|no meaning|task language_model", "model.kind"},
    {{"task=classification", "model=linear", "task.label_smoothing=0.1"}, "model linear"},
    {{"task=classification", "model=linear", "task.head=first_token"}, "model linear", "task.head.kind"},
    {{"task=classification", "model=linear", "task.baselines=false"}, "model linear"},
    {{"task.selection_metric=auc"}, "unknown|'language_model'|classification"},
    {{"data.corpus=tinyshakespear"}, "did you mean 'tinyshakespeare'?"},
    {{"task=classification", "data.corpus=imbd"}, "did you mean 'imdb'?"},
    {{"data.corpus=imdb"}, "for task classification"},
    {{"task=classification", "data.rating.positive_from=nan"}, "out of range"},
    {{"task=classification", "data.rating={positive_from: 4, highest: inf}"}, "out of range", "data.rating.highest"},
    {{"train.clip=1e308"}, "at least 0|1e+30"},
    {{"train.learning_rate=1e39"}, "above 0|1e+30"},
    {{"data.tokenizer={kind: bpe, path: x}"}, "only data.tokenizer: pretrained has it", "data.tokenizer.path"},
    {{"model.feed_forward.activation=swish"}, "unknown value 'swish'; expected gelu"},
    {{"model.feed_forward.activation.beta=2"}, "silu"},
    {{"model.feed_forward={kind: gated, output_activation: true}"}, "mlp", "model.feed_forward.output_activation"},
    {{"model.norm.epsilon=0"}, "0|range"},
    {{"model.norm={kind: rms_norm, position: post, final: false}"}, "model.norm.position post", "model.norm.final"},
    {{"train.epochs=2", "train.steps=3"}, "2 and train.steps 3 both", "train.epochs"},
    {{"train.epochs=0"}, "0|range|above 0"},
    // Tasks with generated rows.
    {{"task=recall", "task.pairs=40"}, "64 is too short|160", "task.length"},
    {{"task=recall", "task.vocabulary=8", "task.pairs=4"}, "4 |3 keys|task.vocabulary 8", "task.pairs"},
    {{"task=recall", "task.updates=5"}, "5 |task.pairs 4"},
    {{"task=recall", "task.length=80"}, "64 |too short|80 tokens", "model.context"},
    {{"task=recall", "task.held_out=1048576", "task.length=65", "model.context=65"}, "too many", "task.held_out"},
    {{"task=selective_copy", "model.context=256", "task.tokens=128"}, "256 is too short|257", "task.length"},
    {{"task=in_context_recall", "model.context=128", "task.length=7"}, "7 is odd"},
    {{"task=in_context_recall", "model.context=128", "task.noise=0.2"},
     "fewer than 2|task.vocabulary 16",
     "task.noise_vocabulary"},
    {{"task=in_context_recall", "model.context=128", "task.noise_vocabulary=4"}, "task.noise 0"},
    {{"task=fuzzy_recall", "model.context=128", "task.longest=8"}, "8 different tokens|7"},
    {{"task=fuzzy_recall", "model.context=128", "task.length=12"}, "12 is too short|13"},
    {{"task=memorisation", "task.length=3"}, "3 is odd"},
    {{"task=compression", "model=lstm"}, "lstm|set it to transformer", "model.kind"},
    {{"task=recall", "model.memory=8"}, "8|no meaning|task recall"},
    // Memory, reversible blocks and chunks.
    {{"model.memory=8", "task=sort", "model.context=11"}, "8 has no meaning|sort", "model.memory"},
    {{"model.memory=8", "task=classification"}, "8|no meaning|task classification", "model.memory"},
    {{"model.memory=8", "model.mixer=lsh"}, "lsh|context|0", "model.memory"},
    {{"model.memory=8", "train.evaluation=random"}, "'random' batches|remember"},
    {{"model.memory=8", "train.overfit_batch=true"}, "true repeats one batch"},
    {{"model.same_length=true"}, "means nothing without model.memory"},
    {{"model.same_length=true", "model.memory=8", "model.mixer=identity"}, "has no effect on", "model.same_length"},
    {{"model.memory=-1"}, "-1|range|0"},
    {{"model.positions={kind: rotary, clamp_length: 3}"}, "unknown key for kind", "model.positions.clamp_length"},
    {{"model.positions=transformer_xl", "model.heads=3", "model.width=33"}, "33 is odd|transformer_xl"},
    {{"model.positions=transformer_xl", "model.mixer=lsh"}, "'transformer_xl' changes scores", "model.positions"},
    {{"model.blocks=reversible", "model.norm.position=post"}, "'reversible' subtracts each branch", "model.blocks"},
    {{"model.blocks=reversible", "model.residual=false"}, "'reversible'|residual", "model.blocks"},
    {{"model.blocks=revers"}, "reversible"},
    {{"model.feed_forward.chunks=0"}, "0|range|1"},
    {{"train.loss_chunks=2", "task=classification"}, "no meaning|task classification", "train.loss_chunks"},
    // Positions and mixers.
    {{"model.positions=rotary", "model.mixer=average_pooling"}, "'rotary' changes scores, and", "model.positions"},
    {{"model.mixer=identity", "model.positions=t5"}, "'t5' changes scores|identity"},
    {{"model.positions={kind: rotary, fraction: 0.01}"}, "0.01|32 features", "model.positions.fraction"},
    {{"model.positions={kind: t5, buckets: 64}", "model.positions.max_distance=32"}, "32|above half"},
    {{"model.positions={kind: alibi, base: 3}"}, "unknown key|'alibi'; only", "model.positions.base"},
    {{"model.positions=shaw", "model.mixer=metric", "model.mixer.backend=fused"}, "'fused'|shaw positions"},
    {{"model.mixer={kind: metric, values: own, backend: fused}", "model.heads=1"},
     "in fp32 'fused'|up to 96 wide, not 128|bf16",
     "model.mixer.backend"},
    {{"model.mixer={kind: quadratic, values: unnormalised, qk_norm: true, backend: fused}", "model.heads=1",
      "train.precision=tf32"},
     "in tf32 'fused'|96 wide",
     "model.mixer.backend"},
    {{"model.mixer={kind: metric, score: as_published}", "model.positions=rotary"}, "score 'as_published' has no"},
    {{"model.mixer={kind: quadratic, form: full, values: own}"}, "form 'full' scores the", "model.mixer.values"},
    {{"model.mixer={kind: quadratic, form: full, qk_norm: true}"}, "form 'full' scores the", "model.mixer.qk_norm"},
    {{"model.mixer.learned_temperature=true"}, "true needs normalised|qk_norm"},
    {{"model.mixer=metric", "model.mixer.learned_temperature=true"}, "true needs normalised"},
    {{"model.mixer={kind: quadratic, form: full}", "model.mixer.learned_temperature=true"}, "form 'full' scores"},
    {{"model.mixer={kind: quadratic, form: full}", "model.mixer.fixed_norm=true"}, "is for form 'projected'"},
    {{"model.mixer={kind: metric, constraint: identity}", "model.mixer.fixed_norm=true"}, "constraint 'identity'"},
    {{"model.mixer=fourier"}, "fourier|behind it"},
    {{"model.mixer={kind: short_convolution, convolution: 0}"}, "0 mixes no tokens", "model.mixer.convolution"},
    {{"model.mixer=static", "model.memory=8"}, "static|0", "model.memory"},
    {{"model.mixer=hyena", "model.memory=8"}, "hyena|0", "model.memory"},
    {{"model.memory=8", "model.convolution=3"}, "model.memory|0"},
    {{"model.mixer=none", "model.convolution=3"}, "none|0"},
    {{"model.feed_forward=none", "model.mixer=none"}, "does nothing"},
    {{"model.feed_forward=none", "model.feed_forward.chunks=2"}, "unknown key"},
    {{"model.feed_forward=none", "model.blocks=reversible"}, "model.feed_forward"},
    {{"model.mixer.key_value_heads=3"}, "3 does not divide model.heads 4|0", "model.mixer.key_value_heads"},
    {{"model.mixer={kind: scaled_dot_product, sinks: true, weights: sigmoid}"},
     "true needs the sum|softmax",
     "model.mixer.sinks"},
    {{"model.mixer=differential", "model.heads=1"}, "1 heads cannot be paired|2", "model.heads"},
    {{"task=sequence_to_sequence", "data.synthetic=copy", "model=encoder_decoder", "model.cross_mixer.window=4"},
     "4 has no meaning|another sequence|0",
     "model.cross_mixer.window"},
    // Masked language models.
    {masked({"task.fraction=0"}), "0|out of range|above 0"},
    {masked({"task.fraction=1.1"}), "above 0|1"},
    {masked({"task.masked=-0.1"}), "at least 0|1"},
    {masked({"task.masked=0.8", "task.random=0.3"}), "0.8|task.random 0.3 together|1", "task.masked"},
    {masked({"task.sample_interval=10"}), "only task: language_model"},
    {masked({"task.whole_words=true"}), "subword tokenizer|data.tokenizer"},
    {masked({"model.memory=8"}), "8|meaning|masked_language_model"},
    {masked({"model.same_length=true"}), "means nothing without model.memory"},
    {masked({"model.embedding.ngrams.order=2"}), "no meaning|masked_language_model"},
    {masked({"model.embedding.scale=log_count_ratio"}), "'log_count_ratio'|meaning|task"},
    {masked({"model=linear"}), "linear|meaning|masked_language_model", "model.kind"},
    {masked({"data.corpus=imdb"}), "'imdb'|task classification"},
    {masked({"data.format=csv"}), "text or jsonl|csv"},
    {masked({"data.tokenizer={kind: unigram, sampling: 0.1}"}), "0.1|no effect", "data.tokenizer.sampling"},
    {masked({"data.packing=spfhp", "data.separate_documents=true"}), "no effect|data.packing"},
    // Recurrent and feed-forward models.
    {{"task=sort", "model.context=11", "model=lstm", "model.carry_state=true"}, "true|no meaning|sort"},
    {{"model=gru", "model.carry_state=true", "train.evaluation=random"}, "'random' batches"},
    {{"model=lstm", "model.carry_state=true", "train.overfit_batch=true"}, "model.carry_state|batch continues"},
    {{"model=lstm", "model.carry_state=true", "data.packing=spfhp"}, "model.carry_state needs"},
    {{"model=lstm", "model.embedding.scale=log_count_ratio"}, "'log_count_ratio'|meaning|task"},
    {{"model=lstm", "model.embedding.ngrams.order=2"}, "no meaning|task language_model"},
    {{"model=lstm", "model.heads=2"}, "unknown key|'lstm'; only model: transformer"},
    {{"model.carry_state=true"}, "only model: lstm or gru"},
    {{"model=feed_forward", "model.layers=2"}, "unknown key|'feed_forward'; only model:"},
    {{"model=feed_forward", "model.embedding.tie=true"}, "model.hidden, 256|model.width, 64"},
    {{"model=feed_forward", "model.window=0"}, "0|range|1"},
    {{"model=lstmm"}, "transformer, encoder_decoder, lstm, gru,"},
    // Regions, and models without blocks.
    {{"task=classification", "model.embedding.region.longest=4"}, "unknown key|'none'; only"},
    {pooled_and({"task.head.bag.units=3"}), "unknown key|'none'"},
    {{"task=classification", "task.head.dropout=0.5"}, "unknown key|'mean_pooled'|task.head: max_pooled"},
    {{"model.embedding.region=sequence"}, "no meaning|task language_model", "model.embedding.region.kind"},
    {pooled_and({"model.embedding.region.shortest=4"}), "4|above model.embedding.region.longest 3"},
    {pooled_and({"model.width=99"}), "99|divided|2"},
    {{"model.layers=0"}, "0 is for classification"},
    {pooled_and({"task.head=first_token"}), "class token|nothing", "model.layers"},
    {pooled_and({"model.positions=learned"}), "'learned' has no effect|model.layers 0"},
    {pooled_and({"model.mixer=quadratic"}), "effect|model.layers 0", "model.mixer.kind"},
    {pooled_and({"model.heads=2"}), "effect|model.layers 0"},
    {pooled_and({"model.feed_forward=gated"}), "effect|model.layers 0", "model.feed_forward.kind"},
    {pooled_and({"model.norm=rms_norm"}), "task.head has no norm", "model.norm.kind"},
    {pooled_and({"model.norm.final=false"}), "there is no block"},
    {pooled_and({"model.bias=true"}), "task.head has no norm"},
    {{"task={kind: classification, head: {kind: max_pooled, bag: naive_bayes}}", "train.cpu_slices=2"},
     "task.head.bag"},
};

}  // namespace

TEST_CASE("a refused combination of keys is an error that names the key, its place and the reason", "[config]") {
  check_refused(GENERATE(from_range(refused)));
}

TEST_CASE("the error for an option that excludes several keys or models names it for each of them", "[config]") {
  for (const std::string change : {"data.format=csv", "data.header=absent", "data.text_field=review",
                                   "data.label_field=2", "data.test_path=x", "data.rating.positive_from=7"})
    check_refused({{"task=classification", "data.corpus=imdb", change}, "data.corpus imdb"});
  for (const std::string task : {"task=classification", "task=masked_language_model"})
    for (const std::string model : {"lstm", "gru", "feed_forward"})
      check_refused({{task, "model=" + model}, model + " predicts tokens", "model.kind"});
  for (const std::string tokenizer : {"byte", "word"})
    check_refused({masked({"task.whole_words=true", "data.tokenizer=" + tokenizer}), "subword", "task.whole_words"});
  for (const auto* change :
       {"model.embedding.ngrams.order=2", "model.embedding.scale=log_count_ratio", "train.cpu_slices=2"})
    check_refused({pooled_and({change}), "model.embedding.region"});
}

TEST_CASE("a valid combination of keys is accepted, and loads again from its dump", "[config]") {
  const auto overrides = GENERATE(values<Overrides>({
      {"task=classification", "model.embedding.ngrams={order: 2, buckets: 512}"},
      {"model.embedding.tie=false"},
      {"model.mixer={kind: metric, values: own, backend: fused}", "model.heads=1", "train.precision=bf16"},
      {"model.mixer={kind: metric, backend: fused}", "model.heads=1"},
      {"train.divergence.spikes={threshold: 6, action: skip}"},
      {"task=classification", "model=linear", "model.ngrams=1", "task.truncation=tail"},
      {"task=classification", "model=linear", "model.context=99", "train.batch_size=3"},
      {"task=classification", "data.corpus=imdb", "data.malformed_limit=0.1"},
      {"task=classification", "data.corpus=imdb", "data.extra_path=x", "data.text_field=review"},
      {"train.schedule=constant"},
      {"train.init_from=/run", "train.lora={rank: 4, alpha: 0.5, targets: [feed_forward], full: [head]}"},
      {"train.clip=1e20"},
      pooled_and({}),
      pooled_and({"model.dropout=0.1", "model.embedding={std: 0.01, dropout: 0.2}"}),
      pooled_and({"task.head=mean_pooled", "model.norm={kind: rms_norm, epsilon: 1e-6}"}),
      pooled_and({"task.head=mean_pooled", "model.bias=true"}),
      pooled_and({"model.embedding.region=none"}),
      pooled_and({"model.layers=1", "model.mixer=metric", "model.positions=learned"}),
      pooled_and({"train.optimizer={kind: adagrad, epsilon: 1e-6}"}),
      pooled_and({"data.packing=spfhp"}),
      {"model={kind: lstm, layers: 1, width: 32, carry_state: true, dropout: 0.5}"},
      {"model={kind: gru, embedding: {tie: false, scale: sqrt_width, dropout: 0.1, std: 0.1}}"},
      {"model={kind: feed_forward, window: 3}"},
      {"model={kind: feed_forward, hidden: 64, embedding: {tie: true}}", "train.loss_chunks=3"},
      {"model=lstm", "task=sort"},
      {"model=feed_forward", "task=copy", "model.context=255"},
      {"model=gru", "data.packing=spfhp", "train.evaluation=random"},
      {"model={norm: {kind: rms_norm, position: both}, residual: false}"},
      {"model={norm: rms_norm, feed_forward: gated, bias: true}"},
      {"model.feed_forward={activation: {kind: silu, beta: 3}}"},
      {"model.feed_forward={activation: relu_squared, output_activation: true}"},
      {"task=sort"},
      {"train.learning_rate=0.1234567890123", "data.path='/a b/\"c\": d'", "data.tokenizer.kind=byte",
       "train.optimizer.betas=[0.1, 0.2]", "train.freeze=['a: b', head]", "train.rate_factors=['a: b=1', head=2]"},
      {"task=classification", "model=linear"},
      {"task={kind: classification, head: {kind: first_token, recalibrate: true}}"},
      {"train.schedule=constant", "train.evaluation=random",
       "train.divergence={action: {kind: rollback, limit: 9}, spikes: {threshold: 6}}"},
      {"model={positions: none, norm: {position: post}, embedding: {tie: false}}"},
      {"model.memory=8", "model.same_length=true", "model.blocks=reversible",
       "model.feed_forward={kind: gated, chunks: 4}", "train.loss_chunks=4",
       "model.positions={kind: transformer_xl, shared_biases: false, clamp_length: 5}"},
      masked({"model.positions=transformer_xl", "train.loss_chunks=3", "model.blocks=reversible"}),
      masked({"model.mixer=lsh", "data.packing={kind: nnlshp, separate: false}"}),
  }));
  check_reads_back(default_experiment(overrides).config);
}

TEST_CASE("every mixer accepts positions that are added to the embeddings, and loads again from its dump", "[config]") {
  const auto mixer = GENERATE("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity", "none");
  const auto positions = GENERATE("none", "learned", "sinusoidal");
  check_reads_back(
      default_experiment({std::string("model.mixer=") + mixer, std::string("model.positions=") + positions}).config);
}

}  // namespace metaformer::test_rules
