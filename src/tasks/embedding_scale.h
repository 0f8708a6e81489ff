#pragma once
// The scale of embeddings that training data ask for, and the features of the training split.

#include <functional>

#include "model/classifier.h"
#include "model/make_model.h"
#include "tasks/task.h"
#include "text/ngram_features.h"

namespace metaformer {

// The distinct features of each row of a batch.
using RowFeatures = std::function<std::vector<std::vector<std::uint32_t>>(const Batch& batch)>;

// Of the training texts as evaluation sees them: cut to the context, without noise. Throws Interrupted when a signal
// asks to stop.
std::vector<LabelledFeatures> training_features(const BatchStream& stream, const RowFeatures& row_features);

// model.embedding.scale: log_count_ratio, and task.head.bag: naive_bayes. Naive Bayes weighs features by how unequally
// the classes have them; a network that takes their embeddings in that proportion learns less from the rest
// (Wang and Manning 2012, "Baselines and bigrams").

// Multiplies the embedding of each token and n-gram bucket by |r|, r its log-count ratio
// (tasks/linear_classifier.h) between the training texts of a class and all others, as evaluation sees these texts:
// cut, without noise. Of more than two classes the largest |r|; 0 for what no training text has. Throws Interrupted
// when a signal asks to stop.
void scale_by_log_count_ratios(Classifier& model, const BatchStream& stream, const ModelSizes& sizes);

// Likewise the n-grams of a bag.
void scale_bag_by_log_count_ratios(NgramBag& bag, const BatchStream& stream, std::int64_t classes);

}  // namespace metaformer
