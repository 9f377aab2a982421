// SPDX-License-Identifier: Apache-2.0
/*
 * Inference by table: ops as text, with the result type worked out by hand (tests/ir/all_ops.ir has
 * one of every op) or the error that is due. Hostile attribute values are errors, never crashes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"

static const char header[] =
    "model \"t\" {\n"
    "sym n in [1, 64] sym s in [1, 512] sym h in [0, inf] sym w in [0, inf]\n"
    "const @k: f32[3] = splat(1.0)\n"
    "func @main(%x: f32[n, 4, 6], %y: f32[6], %z: f32[n, 4, 6], %i: i64[n, 2], %b: bool[3], %img: f32[n, 4, h, w],\n"
    "%f: f32[8, 4, 3, 3], %q: f16[4], %u: u8[4, 5], %v: i8[5, 6], %e: f32[0, 4], %sc: f32[], %p: f32[s, 6], %t: i32[2, 3],\n"
    "%c: bool[], %st: string[2], %l: f32[5, 2, 4], %lw: f32[1, 12, 4], %lr: f32[1, 12, 3]) -> () {\n";

/* ok: the types in the text hold; else the message must contain `error`. checks: run-time checks
 * that result, or -1. */
struct row {
    const char *text, *error;
    int checks;
};

static void run(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct strbuf text = {0};
        struct diag_sink sink;
        diag_init(&sink);
        strbuf_printf(&text, "%s%s\nreturn } }", header, rows[i].text);
        struct ir_module *m = ir_parse_module(text.data, text.len, "t", NULL, 0, &sink);
        const char *message = sink.items.n ? sink.items.v[0].message : "";
        if (!rows[i].error) {
            if (!m) fail_msg("%s: %s", rows[i].text, message);
            if (rows[i].checks >= 0 && (size_t)rows[i].checks != m->checks.n)
                fail_msg("%s: %zu checks", rows[i].text, m->checks.n);
            if (!ir_verify_module(m, &sink))
                fail_msg("%s: %s", rows[i].text, sink.items.v[0].message);
        } else if (m || !strstr(message, rows[i].error)) {
            fail_msg("%s: wanted \"%s\", got \"%s\"", rows[i].text, rows[i].error, message);
        }
        ir_module_destroy(m);
        diag_deinit(&sink);
        strbuf_deinit(&text);
    }
}

static void test_pointwise(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"%r = add %x, %y : f32[n, 4, 6]", NULL, 0},
        {"%r = add %y, %sc : f32[6]", NULL, 0},
        {"%a = reshape %y dims=(6, 1) %r = add %a, %y : f32[6, 6]", NULL, 0},
        {"%r = add %p, %e", "s and 0 can never be equal", 0},
        {"%a = iota dims=(h) type=f32 axis=0 %r = add %a, %y : f32[6]", NULL,
         1}, /* h == 6 is checked at run time */
        {"%a = iota dims=(w) type=f32 axis=0 %o = iota dims=(h) type=f32 axis=0 %r = mul %a, %o : f32[w]",
         NULL, 1},
        {"%r = add %y, %b", "must have one element type", 0},
        {"%r = add %b, %b", "must be of a float or integer type, not bool", 0},
        {"%r = and %y, %y", "must be of an integer or bool type, not f32", 0},
        {"%r = exp %i", "must be of a float type, not i64", 0},
        {"%r = eq %b, %b : bool[3]", NULL, 0},
        {"%r = lt %b, %b", "not bool", 0},
        {"%r = pow %y, %t", "can never be equal", 0},
        {"%r = pow %sc, %t : f32[2, 3]", NULL, 0},
        {"%r = select %b, %sc, %sc : f32[3]", NULL, 0},
        {"%r = select %y, %sc, %sc", "operand 0 must be bool", 0},
        {"%r = select %b, %sc, %q", "operands 1 and 2 must have one element type", 0},
        {"%r = cast %b to=f8e5m2 : f8e5m2[3]", NULL, 0},
        {"%r = cast %b to=string", "cannot convert to string", 0},
        {"%r = cast %st to=f32", "not string", 0},
        {"%r = cast %b to=f32 saturate=7", "attribute `saturate` is 7, but must be in [0, 1]", 0},
        {"%r = cast %b", "attribute `to` is missing", 0},
        {"%r = cast %b to=3", "attribute `to` must be of kind dtype, not int", 0},
        {"%r = cast %b too=f32", "has no attribute `too`", 0},
        {"%r = bitcast %y to=i32 : i32[6]", NULL, 0},
        {"%r = bitcast %y to=f64", "f32 has 32 bits, f64 has 64", 0},
        {"%r = neg none", "operand 0 is missing", 0},
        {"%r = neg %y, %y", "takes 1 to 1 operands, not 2", 0},
        {"%r, %o = neg %y", "has 1 results, not 2", 0},
        {"%r = neg %y { yield }", "has 0 regions, not 1", 0},
        {"%r = cum_sum %y axis=1", "attribute `axis` is 1, but must be in [0, 0]", 0},
        {"%r = cum_sum %sc axis=0", "a scalar has no axis", 0},
        {"%r = softmax %x axis=-1", "attribute `axis` is -1, but must be in [0, 2]", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

static void test_movement(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"%r = reshape %x dims=(4*n, 6) : f32[4*n, 6]", NULL, 0},
        {"%r = reshape %x dims=(24*n + 1)",
         "number of elements: 24*n and 24*n + 1 can never be equal", 0},
        {"%r = reshape %x dims=(s) : f32[s]", NULL, 1},
        {"%r = reshape %x dims=(-1, 6)", "does not hold", 0},
        {"%r = reshape %y dims=(9223372036854775807, 9223372036854775807)", "overflow", 0},
        {"%r = transpose %x perm=[0, 1]", "has 2 entries, but must have 3", 0},
        {"%r = transpose %x perm=[0, 1, 1]", "names axis 1 twice", 0},
        {"%r = transpose %x perm=[0, 1, 9223372036854775807]", "must be in [0, 2]", 0},
        {"%r = broadcast %y dims=(n, 6) : f32[n, 6]", NULL, 0},
        {"%r = broadcast %x dims=(6)", "cannot broadcast to rank 1", 0},
        {"%r = broadcast %y dims=(7)", "can never be equal", 0},
        {"%r = slice %y starts=(1) steps=[2] sizes=(3) : f32[3]", NULL, 0}, /* 1 3 5 */
        {"%r = slice %y starts=(2) steps=[2] sizes=(3)", "end of a slice: 7 <= 6", 0},
        {"%r = slice %y starts=(5) steps=[-1] sizes=(6) : f32[6]", NULL, 0},
        {"%r = slice %y starts=(5) steps=[-1] sizes=(7)", "last index of a slice: 0 <= -1", 0},
        {"%r = slice %y starts=(6) steps=[-1] sizes=(1)", "start of a slice: 7 <= 6", 0},
        {"%r = slice %y starts=(-1) steps=[1] sizes=(1)", "first index of a slice: 0 <= -1", 0},
        {"%r = slice %y starts=(0) steps=[0] sizes=(1)", "`steps`[0] is 0", 0},
        {"%r = slice %y starts=(0) steps=[9223372036854775807] sizes=(3)", "end of a slice", 0},
        {"%r = slice %y starts=(h) steps=[1] sizes=(2) : f32[2]", NULL, 1},
        {"%r = slice %p starts=(floordiv(s, 2), 0) steps=[1, 1] sizes=(s - floordiv(s, 2), 6) : f32[-floordiv(s, 2) + s, 6]",
         NULL, 0},
        {"%r = pad %y lo=(2) hi=(-3) : f32[5]", NULL, 0},
        {"%r = pad %y lo=(-4) hi=(-3)", "a result dim: 0 <= -1", 0},
        {"%r = pad %y, %y lo=(1) hi=(1)", "operand 1 must have one element", 0},
        {"%r = pad %y lo=(6) hi=(0) mode=\"reflect\"", "reflected elements", 0},
        {"%r = pad %y lo=(5) hi=(0) mode=\"reflect\" : f32[11]", NULL, 0},
        {"%r = pad %e lo=(1, 0) hi=(0, 0) mode=\"edge\"", "padded with its own elements", 0},
        {"%r = pad %e lo=(1, 0) hi=(0, 0) mode=\"wavy\"",
         "must be one of: constant edge reflect wrap", 0},
        {"%r = concat %x, %z axis=1 : f32[n, 8, 6]", NULL, 0},
        {"%r = concat %x, %y axis=0", "operand 1 must have rank 3", 0},
        {"%r = concat %p, %e axis=0", "6 and 4 can never be equal", 0},
        {"%r = concat axis=0", "takes 1 to -1 operands, not 0", 0},
        {"%r = gather %x, %i axis=1 : f32[n, n, 2, 6]", NULL, 0},
        {"%r = gather %e, %i axis=0", "elements along the gathered axis: 1 <= 0", 0},
        {"%a = iota dims=(0) type=i64 axis=0 %r = gather %e, %a axis=0 : f32[0, 4]", NULL, 0},
        {"%r = gather %x, %y axis=0", "must be of an integer type", 0},
        {"%a = iota dims=(1,1,1,1,1,1,1,1,1,1,1) type=i64 axis=0 %r = gather %x, %a axis=0",
         "rank 13", 0},
        {"%r = gather_elements %p, %i axis=0", NULL, -1},
        {"%a = iota dims=(2, 7) type=i64 axis=0 %r = gather_elements %p, %a axis=0",
         "off the axis: 7 <= 6", 0},
        {"%r = gather_nd %x, %i : f32[n, 6]", NULL, 0},
        {"%r = gather_nd %x, %i batch_dims=1 : f32[n]", NULL, 0},
        {"%r = gather_nd %x, %i batch_dims=2", "must be in [0, 1]", 0},
        {"%r = gather_nd %y, %i", "must be a constant in [1, 1]", 0},
        {"%r = scatter_elements %x, %i, %x axis=0", "operand 1 must have rank 3", 0},
        {"%r = scatter_nd %x, %i, %y", "operand 2 must have rank 2", 0},
        {"%a = iota dims=(n, 6) type=f32 axis=0 %r = scatter_nd %x, %i, %a reduction=\"max\" : f32[n, 4, 6]",
         NULL, 0},
        {"%a = iota dims=(n, 6) type=f32 axis=0 %r = scatter_nd %x, %i, %a reduction=\"xor\"",
         "must be one of", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

static void test_sampling(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"%r = resize %y sizes=(12) scales=f[2.0] : f32[12]", NULL, 0},
        {"%r = resize %y sizes=(12) scales=f[nan]", "`scales`[0] is nan", 0},
        {"%r = resize %y sizes=(12) coord=\"tf_crop_and_resize\"", "needs attribute `roi`", 0},
        {"%r = resize %e sizes=(3, 4)", "a resampled axis: 1 <= 0", 0},
        {"%r = reverse_sequence %x, %y time_axis=0 batch_axis=1", "operand 1 must be i64", 0},
        {"%a = iota dims=(4) type=i64 axis=0 %r = reverse_sequence %x, %a time_axis=1 batch_axis=1",
         "are both 1", 0},
        {"%a = iota dims=(n, 5, 3) type=f32 axis=0 %r = grid_sample %img, %a",
         "operand 1 must have rank 4", 0},
        {"%a = iota dims=(n, 5, 5, 3) type=f32 axis=0 %r = grid_sample %img, %a",
         "3 and 2 can never be equal", 0},
        {"%a = iota dims=(7, 5) type=f32 axis=0 %o = iota dims=(7) type=i64 axis=0 %r = roi_align %img, %a, %o",
         "5 and 4 can never be equal", 0},
        {"%a = iota dims=(7, 4) type=f32 axis=0 %o = iota dims=(7) type=i64 axis=0 %r = roi_align %img, %a, %o output_height=0",
         "`output_height` is 0", 0},
        {"%a = iota dims=(1, 13, 20) type=f32 axis=0 %r = col2im %a image=(5, 6) block=[2, 2]",
         "not a multiple", 0},
        {"%a = iota dims=(1, 12, 21) type=f32 axis=0 %r = col2im %a image=(5, 6) block=[2, 2]",
         "21 and 20", 0},
        {"%a = iota dims=(1, 12, 4) type=f32 axis=0 %r = col2im %a image=(1, 6) block=[3, 2]",
         "positions of a block: 0 <= -1", 0},
        {"%a = iota dims=(1, 12, 4) type=f32 axis=0 %r = col2im %a image=(5, 6) block=[2, 2] strides=[0, 1]",
         "`strides`[0] is 0", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

static void test_reductions(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"%r = reduce_sum %x axes=[0, 2] : f32[4]", NULL, 0},
        {"%r = reduce_sum %x axes=[0, 0]", "names axis 0 twice", 0},
        {"%r = reduce_sum %x axes=[3]", "must be in [0, 2]", 0},
        {"%r = reduce_sum %x axes=[0, 1, 2, 0]", "more entries than the rank", 0},
        {"%r = reduce_sum %b axes=[0]", "not bool", 0},
        {"%r = arg_max %e axis=0", "the axis to choose from: 1 <= 0", 0},
        {"%r, %o = topk %y k=(7) axis=0", "k of topk: 7 <= 6", 0},
        {"%r, %o = topk %p k=(h) axis=0 : f32[h, 6], i64[h, 6]", NULL, 1},
        {"%r, %o = topk %y k=(1, 2) axis=0", "has 2 entries, but must have 1", 0},
        {"%r = matmul %x, %y", "both operands must have rank 2 or more", 0},
        {"%r = matmul %x, %x", "summed over: 6 and 4 can never be equal", 0},
        {"%r = matmul %x, %x trans_a=1 : f32[n, 6, 6]", NULL, 0},
        {"%r = matmul %u, %v acc=i32 : i32[4, 6]", NULL, 0},
        {"%r = matmul %u, %v", "must have one element type", 0},
        {"%r = matmul %x, %x trans_b=1 acc=f16", "sums of f32 cannot be f16", 0},
        {"%r = matmul %x, %x trans_b=1 acc=i64", "sums of f32 cannot be i64", 0},
        {"%r = matmul %p, %f trans_b=1", "6 and 3 can never be equal", 0},
        {"%r = layer_norm %x, %y axis=2 eps=-1.0", "`eps` is -1", 0},
        {"%r = layer_norm %x, none, %y axis=2 eps=0.5 : f32[n, 4, 6]", NULL, 0},
        {"%r = layer_norm %x, %q axis=2", "operand 1 must be f32", 0},
        {"%r = rms_norm %y, %x axis=0", "must broadcast", 0},
        {"%r = dft %y axis=0", "rank 2 or more", 0},
        {"%r = dft %p axis=0", "must be 1 (real) or 2 (complex)", 0},
        {"%a = reshape %y dims=(3, 2) %r = dft %a axis=0 onesided=1", "onesided needs", 0},
        {"%a = reshape %y dims=(3, 2) %r = dft %a axis=1", "must be in [0, 0]", 0},
        {"%a = reshape %y dims=(6, 1) %r = dft %a axis=0 length=(0)", "1 <= 0", 0},
        {"%r = det %x", "4 and 6 can never be equal", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

static void test_nn(void **state)
{
    (void)state;
    static const struct row rows[] = {
        /* (h - 2)/1 + 1 = h - 2 with h >= 3 checked; (w + 2 - 3)/2 + 1 = (w + 1)/2, and w + 2 >= 3
           checked */
        {"%r = conv %img, %f strides=[1, 2] pads=(0, 1, 0, 1) : f32[n, 8, h - 2, floordiv(w + 1, 2)]",
         NULL, -1},
        {"%a = iota dims=(1, 4, 10, 11) type=f32 axis=0 %r = conv %a, %f strides=[3, 1] dilations=[2, 1] pads=(0, 0, 1, -1) : f32[1, 8, 3, 8]",
         NULL, 0}, /* (10 + 1 - 5)/3 + 1 = 3; 11 - 1 - 3 + 1 = 8 */
        {"%a = iota dims=(1, 4, 2, 11) type=f32 axis=0 %r = conv %a, %f", "3 <= 2 does not hold",
         0},
        {"%r = conv %img, %f strides=[0, 1]", "`strides`[0] is 0", 0},
        {"%r = conv %img, %f strides=[1, 1, 1]", "has 3 entries, but must have 2", 0},
        {"%r = conv %img, %f dilations=[-1, 1]", "`dilations`[0] is -1", 0},
        {"%r = conv %img, %f dilations=[9223372036854775807, 1]", "must be in [1, 2147483647]", 0},
        {"%r = conv %img, %f groups=2", "8 and 4 can never be equal", 0},
        {"%r = conv %img, %f groups=0", "`groups` is 0", 0},
        {"%r = conv %img, %f pads=(9223372036854775807, 0, 9223372036854775807, 0)",
         "size of a kernel", 0},
        {"%r = conv %img, %f, %y", "bias and output channels: 6 and 8", 0},
        {"%r = conv %p, %f", "[N, C, D...]", 0},
        {"%r = conv %img, %x", "operand 1 must have rank 4", 0},
        {"%a = iota dims=(9, 2, 3, 3) type=f32 axis=0 %r = conv %img, %a groups=2",
         "output channels modulo groups: 1 and 0", 0},
        {"%a = iota dims=(8, 4, 0, 3) type=f32 axis=0 %r = conv %img, %a",
         "size of a kernel: 1 <= 0", 0},
        {"%r = conv_transpose %img, %f output=(5, 5)", "8 and 4 can never be equal", 0},
        {"%a = iota dims=(4, 3, 2, 2) type=f32 axis=0 %r = conv_transpose %img, %a groups=2 output=(h + 1, 7) : f32[n, 6, h + 1, 7]",
         NULL, 0},
        {"%a = iota dims=(4, 3, 2, 2) type=f32 axis=0 %r = conv_transpose %img, %a output=(h)",
         "has 1 entries", 0},
        {"%r, %o = pool_max %img kernel=[-2, 2] output=(1, 1)", "`kernel`[0] is -2", 0},
        {"%r, %o = pool_max %img kernel=[2, 2] output=(1, 1) pads=(-1, 0, 0, 0)",
         "pads of a pool: 0 <= -1", 0},
        {"%r, %o = pool_max %img kernel=[2, 2] output=(-1, 1)", "a result dim", 0},
        {"%r = pool_avg %u kernel=[] output=()", "float type", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr hidden_size=3 : f32[5, 1, 2, 3], f32[1, 2, 3], f32[1, 2, 3]",
         NULL, 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr hidden_size=4",
         "hidden size by weights and by attribute: 3 and 4", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr direction=\"bidirectional\"",
         "1 and 2 can never be equal", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr direction=\"sideways\"", "must be one of", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr activations=\"tanh\"", "needs 3 activations, not 1", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr activations=\"tanh tanh sine\"",
         "activation \"sine\" is unknown", 0},
        {"%y1, %h1, %c1 = lstm %l, %lw, %lr activations=\"  \"", "is unknown", 0},
        {"%y1, %h1 = gru %l, %lw, %lr", "12 and 9 can never be equal", 0},
        {"%y1, %h1 = rnn %l, %lw, %lr clip=-1.0", "`clip` is -1", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

static void test_structure(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"%r = constant value=@k : f32[3]", NULL, 0},
        {"%r = dimvec dims=(n, s) scalar=1", "a scalar takes one dim, not 2", 0},
        {"%r = dimvec dims=(overflow)", "dim 0 overflows", 0},
        {"%r = dimvec dims=() : i64[0]", NULL, 0},
        {"%r = iota dims=() type=f32 axis=0", "a scalar has no axis", 0},
        {"%r = iota dims=(3) type=bool axis=0", "cannot count in bool", 0},
        {"%r = iota dims=(1,1,1,1,1,1,1,1,1,1,1,1,1) type=f32 axis=0", "must have at most 12", 0},
        {"%r = if %b { yield %y } { yield %y }", "must have one element", 0},
        {"%r = if %c { yield %y } { yield %x }", "same type for result 0", 0},
        {"%r = if %c { yield %y }", "has 2 regions, not 1", 0},
        {"%r = if %c { yield } { yield %x }", "yields 0 values for 1 results", 0},
        {"%r = if %c { %a = neg %y } { yield %x }", "does not end in yield", 0},
        {"%r = group %y { yield %y }", "%y is not defined here", 0},
        {"%r = group %y {(%a: f32[5]) yield %a }", "does not have its operand's type", 0},
        {"%r = group %y { yield }", "0 arguments for 1 operands", 0},
    };
    run(rows, ARRAY_LEN(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise), cmocka_unit_test(test_movement),
        cmocka_unit_test(test_sampling),  cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_nn),        cmocka_unit_test(test_structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
