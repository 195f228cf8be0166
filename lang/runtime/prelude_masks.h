// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): masks of any target.

namespace {

INL M lnot(M a) { return not_(a); }
INL M eq(M a, M b) { return not_(xor_(a, b)); }
INL M ne(M a, M b) { return xor_(a, b); }
INL M select(M c, M a, M b) { return or_(and_(c, a), and_(not_(c), b)); }
INL I abs_(I a) { return select(lt(a, splat(int32_t(0))), neg(a), a); }
INL bool any_of(M m) { return mask_bits(m) != 0; }
INL M first_lanes(size_t count) { return lt(lanes(), splat(uint32_t(count))); }
// All sixteen lanes: select() with it compiles to nothing.
struct All {
  INL M mask() { return splat(true); }
  operator M() const { return mask(); }
};
template <class T>
INL T select(All, T a, T) {
  return a;
}
INL M and_(All, M m) { return m; }

}  // namespace
