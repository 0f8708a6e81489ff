#pragma once
// Fields that several kinds of models have.

#include <cstdint>

#include "config/schema.h"

namespace metaformer {

template <class Visitor>
void visit_context(Visitor& field, std::int64_t& context) {
  field("context", context, between(1, 1 << 20), "tokens a model sees at once");
}

}  // namespace metaformer
