#include "ops/permuted_rows.h"

#include "ops/first_order.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// 0, c, 2 c ... for the orders, [r, 1].
Tensor first_places_r1(const Tensor& of_bnrc) {
  return torch::arange(of_bnrc.size(2), of_bnrc.options()).unsqueeze(1) * of_bnrc.size(3);
}

// The rows of x_bnfk that index_bnrc names: [b, n, r c, k].
Tensor rows_at(const Tensor& x_bnfk, const Tensor& index_bnrc) {
  const auto pairs = x_bnfk.size(0) * x_bnfk.size(1);
  const auto index_ps = index_bnrc.reshape({pairs, -1});
  const auto first_p1 = torch::arange(pairs, index_bnrc.options()).unsqueeze(1) * x_bnfk.size(2);
  return x_bnfk.reshape({-1, x_bnfk.size(3)})
      .index_select(0, (index_ps + first_p1).flatten())
      .view({x_bnfk.size(0), x_bnfk.size(1), index_ps.size(1), x_bnfk.size(3)});
}

Tensor by_order(const Tensor& x_bnsk, const Tensor& like_bnrc) {
  return x_bnsk.unflatten(2, {like_bnrc.size(2), like_bnrc.size(3)});
}

class InOrders : public torch::autograd::Function<InOrders> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bnck, const Tensor& token_bnrc,
                        const Tensor& place_bnrc) {
    context->save_for_backward({place_bnrc});
    return rows_at(x_bnck, token_bnrc);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a sort of vectors");
    const auto place_bnrc = context->get_saved_variables()[0];
    return {by_order(rows_at(gradients[0], place_bnrc), place_bnrc).sum(2), {}, {}};
  }
};

class OutOfOrders : public torch::autograd::Function<OutOfOrders> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bnsk, const Tensor& token_bnrc,
                        const Tensor& place_bnrc) {
    context->save_for_backward({token_bnrc});
    return by_order(rows_at(x_bnsk, place_bnrc), place_bnrc);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a sort of vectors");
    const auto token_bnrc = context->get_saved_variables()[0];
    return {rows_at(gradients[0].flatten(2, 3), token_bnrc + first_places_r1(token_bnrc)), {}, {}};
  }
};

}  // namespace

Orders sort_orders(const Tensor& key_bnrc) {
  const auto token_bnrc = key_bnrc.argsort(-1, /*descending=*/false);
  const auto place_c = torch::arange(key_bnrc.size(3), key_bnrc.options());
  const auto place_bnrc = torch::empty_like(token_bnrc).scatter_(3, token_bnrc, place_c.expand_as(token_bnrc));
  return {token_bnrc, place_bnrc + first_places_r1(key_bnrc)};
}

Tensor in_orders(const Tensor& x_bnck, const Orders& orders) {
  return InOrders::apply(x_bnck, orders.token_bnrc, orders.place_bnrc);
}

Tensor out_of_orders(const Tensor& x_bnsk, const Orders& orders) {
  return OutOfOrders::apply(x_bnsk, orders.token_bnrc, orders.place_bnrc);
}

}  // namespace metaformer
