package layoutopt;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.dynamicpruning.PartitionPruning$;
import org.apache.spark.sql.execution.joins.HashJoin$;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.HashedRelationBroadcastMode;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A rule of adaptive execution by which scans of registered tables skip blocks without any of a join's keys.
 *
 * Spark calls it each time a stage has ended. Where one side of a join was broadcast, its keys are there, and the other
 * side's scan has not begun: it is replaced by one of the blocks that Python finds to have such keys. Keys are those of
 * this execution, and no job runs for them. Whatever fails here, the plan stays as it is.
 */
public class PruneByKeys extends Rule {
  /** Above so many keys, only the least and the greatest are used. */
  private static final int MOST_KEYS = 20000;
  /** Above so many rows of a broadcast, its keys are not looked at: they are hardly few. */
  private static final int MOST_ROWS = 2000000;
  private final java.util.function.BiFunction handler;

  /** handler: called with a task as JSON and the {@link ReadBlocks.Leaf}; returns a plan, or null to leave it. */
  public PruneByKeys(java.util.function.BiFunction handler) { this.handler = handler; }

  public TreeNode apply(TreeNode plan) {
    try {
      // Spark may rely on equal plans with random parts to run once: they stay equal.
      return ((LogicalPlan) plan).deterministic() ? visit((LogicalPlan) plan) : plan;
    } catch (Throwable failure) {
      warn(failure);
      return plan;
    }
  }

  private static void warn(Object failure) {
    org.slf4j.LoggerFactory.getLogger("layoutopt.spark").warn("the keys of a join skip nothing: " + failure);
  }

  private LogicalPlan visit(LogicalPlan plan) {
    scala.collection.immutable.Seq children = plan.children();
    List visited = new ArrayList();
    boolean changed = false;
    for (int i = 0; i < children.size(); i++) {
      LogicalPlan child = visit((LogicalPlan) children.apply(i));
      changed |= child != children.apply(i);
      visited.add(child);
    }
    LogicalPlan result = changed ? (LogicalPlan) plan.withNewChildren(ReadBlocks.Seqs.of(visited)) : plan;
    return result instanceof Join ? visitJoin((Join) result) : result;
  }

  private LogicalPlan visitJoin(Join join) {
    JoinType type = join.joinType();
    boolean isLeft = PartitionPruning$.MODULE$.canPruneLeft(type) && isEnded(join.right());
    boolean isRight = PartitionPruning$.MODULE$.canPruneRight(type) && isEnded(join.left());
    if (isLeft == isRight) return join;
    scala.Option extracted = ExtractEquiJoinKeys.unapply(join);
    if (!extracted.isDefined()) return join;
    scala.Product parts = (scala.Product) extracted.get();
    scala.collection.immutable.Seq left = (scala.collection.immutable.Seq) parts.productElement(1);
    scala.collection.immutable.Seq right = (scala.collection.immutable.Seq) parts.productElement(2);
    Keys keys = Keys.of((LogicalQueryStage) (isLeft ? join.right() : join.left()), isLeft ? right : left);
    if (keys == null) return join;
    return narrowChild(join, isLeft ? 0 : 1, isLeft ? left : right, keys);
  }

  private static boolean isEnded(LogicalPlan plan) {
    if (!(plan instanceof LogicalQueryStage)) return false;
    LogicalQueryStage stage = (LogicalQueryStage) plan;
    return stage.physicalPlan() instanceof BroadcastQueryStageExec
        && ((BroadcastQueryStageExec) stage.physicalPlan()).isMaterialized();
  }

  /**
   * Leaves out blocks that have no row of which the probes are among the keys: the join drops them.
   *
   * Only steps that keep each row's probes, and drop a row for no other row's sake, lead further down.
   *
   * probes: the values of the plan's rows that the join compares, in the order of the keys; null for one that is lost.
   */
  private LogicalPlan narrow(LogicalPlan plan, scala.collection.immutable.Seq probes, Keys keys) {
    ReadBlocks.Leaf leaf = ReadBlocks.Leaf.of(plan);
    if (leaf != null) return narrowLeaf(leaf, plan, probes, keys);
    if (!plan.deterministic()) return plan;
    if (plan instanceof Project) return narrowChild(plan, 0, replaced(probes, ((Project) plan).projectList()), keys);
    if (plan instanceof Filter) return narrowChild(plan, 0, probes, keys);
    if (plan instanceof Aggregate) return narrowGroups((Aggregate) plan, probes, keys);
    if (plan instanceof Union) return narrowUnion((Union) plan, probes, keys);
    if (!(plan instanceof Join)) return plan;
    // Rows of a side whose rows the join keeps or drops one by one.
    String type = ((Join) plan).joinType().toString();
    boolean isInner = type.equals("Inner") || type.equals("Cross");
    LogicalPlan result = plan;
    if (isInner || type.equals("LeftOuter") || type.equals("LeftSemi") || type.equals("LeftAnti"))
      result = narrowChild(result, 0, probes, keys);
    if (isInner || type.equals("RightOuter")) result = narrowChild(result, 1, probes, keys);
    return result;
  }

  private LogicalPlan narrowChild(LogicalPlan plan, int place, scala.collection.immutable.Seq probes, Keys keys) {
    LogicalPlan child = (LogicalPlan) plan.children().apply(place);
    List known = new ArrayList();
    boolean some = false;
    for (int i = 0; i < probes.size(); i++) {
      Expression probe = (Expression) probes.apply(i);
      boolean isKnown = probe != null && !probe.references().isEmpty()
          && probe.references().subsetOf(child.outputSet());
      if (!isKnown) probe = null;
      known.add(probe);
      some |= isKnown;
    }
    LogicalPlan after = some ? narrow(child, ReadBlocks.Seqs.of(known), keys) : child;
    if (after == child) return plan;
    List children = new ArrayList();
    for (int i = 0; i < plan.children().size(); i++) children.add(i == place ? after : plan.children().apply(i));
    return (LogicalPlan) plan.withNewChildren(ReadBlocks.Seqs.of(children));
  }

  /** Groups that the join drops as a whole: probes of what their rows have in common. */
  private LogicalPlan narrowGroups(Aggregate plan, scala.collection.immutable.Seq probes, Keys keys) {
    AttributeSet common = AttributeSet$.MODULE$.empty();
    for (int i = 0; i < plan.groupingExpressions().size(); i++) {
      Object item = plan.groupingExpressions().apply(i);
      if (item instanceof Attribute) common = common.$plus((Attribute) item);
    }
    List known = new ArrayList();
    scala.collection.immutable.Seq below = replaced(probes, plan.aggregateExpressions());
    for (int i = 0; i < below.size(); i++) {
      Expression probe = (Expression) below.apply(i);
      if (probe != null && !probe.references().subsetOf(common)) probe = null;
      known.add(probe);
    }
    return narrowChild(plan, 0, ReadBlocks.Seqs.of(known), keys);
  }

  private LogicalPlan narrowUnion(Union plan, scala.collection.immutable.Seq probes, Keys keys) {
    LogicalPlan result = plan;
    for (int i = 0; i < plan.children().size(); i++) {
      scala.collection.immutable.Seq output = ((LogicalPlan) plan.children().apply(i)).output();
      Map values = new HashMap();
      for (int j = 0; j < output.size(); j++)
        values.put(((Attribute) plan.output().apply(j)).exprId(), output.apply(j));
      result = narrowChild(result, i, replaced(probes, values), keys);
    }
    return result;
  }

  private static scala.collection.immutable.Seq replaced(scala.collection.immutable.Seq probes,
      scala.collection.immutable.Seq list) {
    Map values = new HashMap();
    for (int i = 0; i < list.size(); i++) {
      NamedExpression item = (NamedExpression) list.apply(i);
      if (item instanceof Alias) values.put(item.exprId(), ((Alias) item).child());
    }
    return replaced(probes, values);
  }

  private static scala.collection.immutable.Seq replaced(scala.collection.immutable.Seq probes, Map values) {
    List result = new ArrayList();
    for (int i = 0; i < probes.size(); i++) {
      Object probe = probes.apply(i);
      if (probe != null) probe = new ReadBlocks.Replacing(values).apply(probe);
      if (probe != null && !ReadBlocks.isSmall((Expression) probe)) probe = null;
      result.add(probe);
    }
    return ReadBlocks.Seqs.of(result);
  }

  private LogicalPlan narrowLeaf(ReadBlocks.Leaf leaf, LogicalPlan plan, scala.collection.immutable.Seq probes,
      Keys keys) {
    LogicalPlan known = leaf.known(keys.identify(probes));
    if (known != null) return known;
    Object answer = null;
    try {
      List tests = keys.tests(probes);
      if (!tests.isEmpty()) answer = handler.apply(leaf.task(tests, keys.from()), leaf);
    } catch (Throwable failure) {
      answer = failure;
    }
    if (answer != null && !(answer instanceof LogicalPlan)) warn(answer);
    return leaf.keep(answer instanceof LogicalPlan ? (LogicalPlan) answer : plan);
  }

  /** The keys of one side of a join, which was broadcast. */
  static class Keys {
    private final LogicalQueryStage stage;
    private final Broadcast broadcast;
    private final scala.collection.immutable.Seq expressions;

    private Keys(LogicalQueryStage stage, Broadcast broadcast, scala.collection.immutable.Seq expressions) {
      this.stage = stage;
      this.broadcast = broadcast;
      this.expressions = expressions;
    }

    /** expressions: the keys as the join has them; null is returned if the broadcast has others. */
    static Keys of(LogicalQueryStage stage, scala.collection.immutable.Seq expressions) {
      BroadcastQueryStageExec exchange = (BroadcastQueryStageExec) stage.physicalPlan();
      scala.Option result = (scala.Option) exchange.resultOption().get();
      if (!result.isDefined() || !(result.get() instanceof Broadcast)) return null;
      Broadcast broadcast = (Broadcast) result.get();
      if (!(broadcast.value() instanceof HashedRelation)) return null;
      Object mode = ((org.apache.spark.sql.catalyst.plans.physical.BroadcastPartitioning)
          exchange.outputPartitioning()).mode();
      if (!(mode instanceof HashedRelationBroadcastMode) || ((HashedRelationBroadcastMode) mode).isNullAware())
        return null;
      List bound = new ArrayList();
      scala.collection.immutable.Seq rewritten = HashJoin$.MODULE$.rewriteKeyExpr(expressions);
      package$AttributeSeq output = new package$AttributeSeq(exchange.output());
      for (int i = 0; i < rewritten.size(); i++)
        bound.add(BindReferences$.MODULE$.bindReference((Expression) rewritten.apply(i), output, true));
      HashedRelationBroadcastMode expected = new HashedRelationBroadcastMode(ReadBlocks.Seqs.of(bound), false);
      if (!expected.canonicalized().equals(((HashedRelationBroadcastMode) mode).canonicalized())) return null;
      return new Keys(stage, broadcast, expressions);
    }

    String identify(scala.collection.immutable.Seq probes) { return broadcast.id() + ":" + probes; }

    /** For each probe, that it is among the keys. */
    List tests(scala.collection.immutable.Seq probes) {
      List result = new ArrayList();
      for (int i = 0; i < probes.size(); i++) {
        Expression probe = (Expression) probes.apply(i);
        DataType type = ((Expression) expressions.apply(i)).dataType();
        if (probe == null || !type.equals(probe.dataType()) || !isOrdered(type)) continue;
        Expression test = test(probe, i, type);
        if (test != null) result.add(test);
      }
      return result;
    }

    private static boolean isOrdered(DataType type) {
      return type instanceof IntegralType || type instanceof DateType || type instanceof TimestampType
          || type instanceof TimestampNTZType || type instanceof DecimalType || type.equals(StringType$.MODULE$);
    }

    private Expression test(Expression probe, int place, DataType type) {
      HashedRelation relation = ((HashedRelation) broadcast.value()).asReadOnlyCopy();
      Expression key = new BoundReference(place, type, true);
      if (relation instanceof LongHashedRelation) key = HashJoin$.MODULE$.extractKeyExprAt(expressions, place);
      Comparator order = org.apache.spark.sql.catalyst.util.TypeUtils$.MODULE$.getInterpretedOrdering(type);
      Set values = new HashSet();
      Object least = null;
      Object greatest = null;
      int rows = 0;
      for (scala.collection.Iterator iterator = relation.keys(); iterator.hasNext();) {
        if (++rows > MOST_ROWS) return null;
        Object value = key.eval((InternalRow) iterator.next());
        if (value == null) continue;
        if (value instanceof UTF8String) value = ((UTF8String) value).clone();
        if (least == null || order.compare(value, least) < 0) least = value;
        if (greatest == null || order.compare(value, greatest) > 0) greatest = value;
        if (values.size() <= MOST_KEYS) values.add(value);
      }
      if (values.size() > MOST_KEYS)
        return new And(new GreaterThanOrEqual(probe, new Literal(least, type)),
            new LessThanOrEqual(probe, new Literal(greatest, type)));
      scala.collection.mutable.Builder set = scala.collection.immutable.Set$.MODULE$.newBuilder();
      for (java.util.Iterator items = values.iterator(); items.hasNext();) set.$plus$eq(items.next());
      return new InSet(probe, (scala.collection.immutable.Set) set.result());
    }

    /** What the keys are of, in messages. */
    String from() {
      LogicalPlan plan = stage.logicalPlan();
      while (plan.children().size() > 0) plan = (LogicalPlan) plan.children().apply(0);
      if (!(plan instanceof LogicalRelation)) return plan.nodeName();
      LogicalRelation relation = (LogicalRelation) plan;
      if (relation.catalogTable().isDefined())
        return ((org.apache.spark.sql.catalyst.catalog.CatalogTable) relation.catalogTable().get()).identifier().table();
      if (!(relation.relation() instanceof HadoopFsRelation)) return plan.nodeName();
      scala.collection.immutable.Seq paths = ((HadoopFsRelation) relation.relation()).location().rootPaths();
      return paths.isEmpty() ? plan.nodeName() : ((org.apache.hadoop.fs.Path) paths.apply(0)).getName();
    }
  }
}
