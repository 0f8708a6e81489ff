#pragma once
// Whether this machine multiplies matrices right: what base/mkl_path.h asks of MKL is not something its makers promise.

namespace metaformer {

// Small products of whole numbers, whose results are exact in any order of summation; about a millisecond.
bool products_are_right();

// Throws Error (exit code 1), saying how to leave the choice to MKL, when they are not; as mkl_path() does.
void require_right_products();

}  // namespace metaformer
