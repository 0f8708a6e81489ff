#pragma once
// model.embedding.scale: log_count_ratio, and task.head.bag: naive_bayes. Naive Bayes tells which features of a text
// say anything about its class; a network that takes their embeddings in that proportion learns less from the rest
// (Wang and Manning 2012, "Baselines and bigrams").

#include "model/classifier.h"
#include "model/make_model.h"
#include "tasks/batch_stream.h"

namespace metaformer {

// Multiplies the embedding of each token and n-gram bucket by |r|, r its log-count ratio
// (baselines/linear_classifier.h) between the training texts of a class and all others, as evaluation sees these texts:
// cut, without noise. Of more than two classes the largest |r|; 0 for what no training text has. Throws Interrupted
// when a signal asks to stop.
void scale_by_log_count_ratios(Classifier& model, const BatchStream& stream, const ModelSizes& sizes);

// Likewise the n-grams of a bag.
void scale_bag_by_log_count_ratios(NgramBag& bag, const BatchStream& stream, std::int64_t classes);

}  // namespace metaformer
