package api

import "go/ast"

// Undocumented returns the exported names that say nothing about themselves,
// fields of structs and methods of interfaces included. Neighbours without an
// empty line between them may share a comment.
func (p *Package) Undocumented() []string {
	l := &list{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				known := wellKnown[decl.Name.Name] || decl.Recv != nil && !ast.IsExported(base(decl.Recv.List[0].Type))
				if decl.Name.IsExported() && decl.Doc == nil && !known {
					l.add("%s", decl.Name.Name)
				}
			case *ast.GenDecl:
				p.undocumented(l, decl)
			}
		}
	}
	return l.lines
}

// wellKnown are methods that do everywhere what their name says.
var wellKnown = map[string]bool{"Error": true, "Unwrap": true, "String": true}

func (p *Package) undocumented(l *list, decl *ast.GenDecl) {
	var values neighbours
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			name := spec.Name.Name
			if !spec.Name.IsExported() {
				continue
			}
			if decl.Doc == nil && spec.Doc == nil {
				l.add("%s", name)
			}
			switch t := spec.Type.(type) {
			case *ast.StructType:
				p.silent(l, name, t.Fields)
			case *ast.InterfaceType:
				p.silent(l, name, t.Methods)
			}
		case *ast.ValueSpec:
			said := values.said(p, spec, spec.Doc, spec.Comment)
			if decl.Doc == nil && !said && spec.Names[0].IsExported() {
				l.add("%s", spec.Names[0].Name)
			}
		}
	}
}

func (p *Package) silent(l *list, of string, members *ast.FieldList) {
	var n neighbours
	for _, member := range members.List {
		said := n.said(p, member, member.Doc, member.Comment)
		for _, name := range member.Names {
			if name.IsExported() && !said {
				l.add("%s.%s", of, name.Name)
			}
		}
	}
}

// neighbours are lines of a list that follow each other without an empty one.
type neighbours struct {
	last      int // line
	commented bool
}

// said reports whether the next of the lines has a comment, or shares one.
func (n *neighbours) said(p *Package, node ast.Node, doc, comment *ast.CommentGroup) bool {
	first := p.fset.Position(node.Pos()).Line
	n.commented = doc != nil || comment != nil || n.commented && first == n.last+1
	n.last = p.fset.Position(node.End()).Line
	return n.commented
}
